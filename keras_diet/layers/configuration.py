"""What the configurations of layers hold: their arguments, and which layers inside are frozen."""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Self

import keras

from keras_diet._compat import flatten_layers, sublayers
from keras_diet.types import Config


def named_arguments(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the arguments that the signature of a function or a class names."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters
    return {name: each for name, each in parameters.items() if each.kind not in variadic}


def constructor_arguments(cls: type) -> dict[str, inspect.Parameter]:
    """Return the arguments of the constructor of a class, except those of Keras's classes.

    They include the arguments of the base classes that the class takes as `**kwargs`.
    """
    arguments: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in ("keras", "builtins"):
            break
        constructor = vars(base).get("__init__")
        if constructor is not None:
            # The first class that names an argument has its default.
            arguments |= named_arguments(constructor) | arguments
            kinds = [each.kind for each in inspect.signature(constructor).parameters.values()]
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                break
    return {name: each for name, each in arguments.items() if name != "self"}


def takes_arguments_of(
    cls: type, without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator for a constructor that passes its `**kwargs` to another class.

    The signature of the constructor then shows the arguments of that class.

    Args:
        cls: The other class.
        without: Names of arguments of that class that the constructor sets itself.
    """

    def decorate(constructor: Any) -> Any:
        signature = inspect.signature(constructor)
        *own, others = signature.parameters.values()
        names = {each.name for each in own} | set(without)
        passed = [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, each in constructor_arguments(cls).items()
            if name not in names
        ]
        constructor.__signature__ = signature.replace(parameters=[*own, *passed, others])
        return constructor

    return decorate


def with_arguments(config: Config, layer: Any, names: Iterable[str] | None = None) -> Config:
    """Return a configuration of a layer with the arguments of its constructor that it lacks.

    Each is an attribute of the same name.

    Args:
        config: The configuration of the base class.
        layer: The layer.
        names: Names of the arguments. Defaults to `None`, which means `constructor_arguments`.
    """
    names = constructor_arguments(type(layer)) if names is None else names
    values = {name: getattr(layer, name) for name in names if name not in config}
    serialize = keras.saving.serialize_keras_object
    return config | {name: serialize(value) for name, value in values.items()}


def deserialized(config: Config) -> Config:
    """Return a configuration in which serialized layers and other objects are objects again."""
    return {
        name: keras.saving.deserialize_keras_object(value)
        if isinstance(value, dict) and "class_name" in value
        else value
        for name, value in config.items()
    }


class FromArguments:
    """A mixin for what is made from its configuration, the arguments of its constructor.

    Put it before the class of Keras. A configuration may hold layers and other objects.
    """

    def get_config(self) -> Config:
        """Return the constructor's arguments, also those of Keras's layers."""
        base: Any = super()
        of_layer = base.get_config() if isinstance(self, keras.layers.Layer) else {}
        return with_arguments(of_layer, self)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Make the object from its configuration."""
        base: Any = super()
        return base.from_config(deserialized(config))


def frozen_layers(layer: Any, prefix: str = "") -> Iterator[str]:
    """Yield the paths of layers inside that are frozen although the layer around them is not.

    A layer that is trainable in a frozen one is listed, too. The configuration of a layer tells
    whether the layer is trainable, but not whether the layers are that it makes itself.
    """
    for part in sublayers(layer):
        path = prefix + part.name
        if part.trainable != layer.trainable:
            yield path
        yield from frozen_layers(part, f"{path}/")


def freeze_layers(layer: Any, paths: Collection[str], prefix: str = "") -> None:
    """Freeze the layers at the paths that `frozen_layers` yielded. Others are left out."""
    for part in sublayers(layer):
        path = prefix + part.name
        if path in paths:
            part.trainable = not layer.trainable
        freeze_layers(part, paths, f"{path}/")


def has_lora(model: keras.layers.Layer) -> bool:
    """Return whether LoRA is enabled in a layer. It freezes the others."""
    return any(getattr(layer, "lora_enabled", False) for layer in flatten_layers(model))
