"""The values of all variables of a training, and what two trainings must have in common."""

import json
import re
import zlib
from typing import Any

import keras
import ml_dtypes
import numpy as np

from keras_diet._compat import global_seed

# What depends on earlier calls: the current learning rate, and the shape of the first batch.
_CHANGING = {"optimizer", "build_config", "build_input_shape", "batch_shape"}
# A second model of a process has other numbers in its names.
_NUMBERS = re.compile(r"_\d+(?=[_/\"]|$)")


def optimizers_of(model: keras.Model) -> dict[str, keras.optimizers.Optimizer]:
    """Return the optimizer of `compile` and other attributes that are optimizers, by name."""
    others = {
        name: each
        for name, each in vars(model).items()
        if isinstance(each, keras.optimizers.Optimizer)
    }
    return {"optimizer": model.optimizer, **others}


def variables_of(model: keras.Model) -> list[keras.Variable]:
    """Return the weights, the states of seed generators, the optimizers and the metrics."""
    found = [
        *model.variables,
        *_optimizer_variables(model),
        *model.metrics_variables,
        global_seed(),
    ]
    return list({id(variable): variable for variable in found}.values())


def _optimizer_variables(model):
    return [variable for each in optimizers_of(model).values() for variable in each.variables]


def values_of(model: keras.Model) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the values of all variables. A variable may have a value on each device.

    Returns:
        The weights and the optimizers, which all processes share; and the other values, such as
        states of seed generators and metrics.
    """
    shared_by_all = {id(each) for each in model.trainable_variables}
    shared_by_all |= {id(each) for each in _optimizer_variables(model)}
    shared: dict[str, np.ndarray] = {}
    own: dict[str, np.ndarray] = {}
    for number, variable in enumerate(variables_of(model)):
        values = shared if id(variable) in shared_by_all else own
        for device, value in enumerate(_values_on_devices(variable)):
            values[f"{number}_{device}"] = np.asarray(keras.ops.convert_to_numpy(value))
    return shared, own


def restore_values(model: keras.Model, values: dict[str, np.ndarray]) -> None:
    """Set what `values_of` returned, both dictionaries in one."""
    for number, variable in enumerate(variables_of(model)):
        replicas = _values_on_devices(variable)
        for device, replica in enumerate(replicas):
            value = _with_dtype(values[f"{number}_{device}"], variable)
            (variable if len(replicas) == 1 else replica).assign(value)


def _values_on_devices(variable):
    """Return the value, or the variables of all replicas of `tf.distribute`."""
    value = variable.value
    if keras.config.backend() != "tensorflow":
        return [value]
    # Metrics have another value on each replica. Reading such a variable would add them up.
    return list(getattr(value, "values", [value]))


def _with_dtype(value, variable):
    """Undo what files of NumPy do to dtypes that they do not know, such as bfloat16."""
    dtype = getattr(ml_dtypes, variable.dtype, None)
    return value if dtype is None else value.view(dtype).reshape(variable.shape)


def facts_of_optimizers(model: keras.Model) -> dict[str, Any]:
    """Return the class and the settings of each optimizer.

    Raises:
        ValueError: If `fit` does not build one of them. Its variables could not be restored.
    """
    # `fit` builds the optimizer of `compile`. With float16, Keras puts it into another optimizer.
    built_by_fit = (model.optimizer, getattr(model.optimizer, "inner_optimizer", None))
    facts = {}
    for attribute, optimizer in optimizers_of(model).items():
        if not optimizer.built and not any(optimizer is each for each in built_by_fit):
            raise ValueError(
                "`ExactResume` needs optimizers that are built before `fit`. Received: a model "
                f"whose attribute {attribute!r} is not built. Call `model.{attribute}.build("
                "trainable_variables)` with the variables that it changes."
            )
        config = keras.saving.serialize_keras_object(optimizer)
        settings = json.loads(json.dumps(config["config"], default=str))
        settings.pop("name", None)
        facts[attribute] = config["class_name"]
        facts |= {f"{attribute}.{name}": _text(value) for name, value in settings.items()}
    return facts


def facts_of_model(model: keras.Model) -> dict[str, Any]:
    """Return the configuration of a model as a checksum, and the shapes of all variables."""
    shapes = {
        f"shape of variable {number} ({_NUMBERS.sub('', variable.name)})": str(variable.shape)
        for number, variable in enumerate(variables_of(model))
    }
    return {"model": _checksum(_config(model)), **shapes}


def _config(model):
    try:
        config = _without_changing(keras.saving.serialize_keras_object(model))
        text = json.dumps(config, default=str)
    except (NotImplementedError, TypeError, ValueError):
        # A subclass of `keras.Model` need not have a configuration.
        return type(model).__name__
    return _NUMBERS.sub("", text)


def _without_changing(config):
    if isinstance(config, dict):
        kept = {name: each for name, each in config.items() if name not in _CHANGING}
        return {name: _without_changing(each) for name, each in kept.items()}
    if isinstance(config, (list, tuple)):
        return [_without_changing(each) for each in config]
    return config


def _text(value):
    if isinstance(value, (int, float, str, bool, type(None))):
        return value
    # An optimizer in an optimizer has a name too.
    return _NUMBERS.sub("", json.dumps(value))


def _checksum(text):
    return f"checksum {zlib.crc32(text.encode()):08x}"
