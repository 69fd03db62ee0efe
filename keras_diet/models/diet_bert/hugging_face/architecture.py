"""How a type of Hugging Face's encoders becomes a `DietBertBackbone`, and back."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from keras_diet import validation
from keras_diet._extras import import_transformers
from keras_diet.types import Config

# BERT's names of the arguments of a backbone. A configuration must have the sizes.
_SIZES = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
}
_NAMES = {
    **_SIZES,
    "num_segments": "type_vocab_size",
    "activation": "hidden_act",
    "layer_norm_epsilon": "layer_norm_eps",
}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_approximate",
    "gelu_fast": "gelu_approximate",
    "gelu_pytorch_tanh": "gelu_approximate",
    "gelu_python_tanh": "gelu_approximate",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
_THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}


@dataclasses.dataclass(frozen=True)
class Field:
    """Values of a configuration that a backbone has in another form.

    Attributes:
        read: `read(config)` returns arguments of the backbone.
        write: The reverse: `write(arguments)` returns values of the configuration.
    """

    read: Callable[[Config], Config] = lambda config: {}
    write: Callable[[Config], Config] = lambda arguments: {}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """One type of encoders.

    Attributes:
        name: How the names of its classes in `transformers` begin.
        base: Name of the encoder in a model with a head. Its weights begin with it there.
        layers: Hugging Face's layer for each of our layers, with the names in files, which can
            differ from those in memory. `{}` is the number of the block. Several of our layers,
            in a tuple, are the parts of one layer there.
        constants: Arguments of the backbone that all encoders of the type have.
        names: Names in the configuration that differ from BERT's, by arguments of the backbone.
            `None` has no name there.
        fields: Values of the configuration in another form.
        dropout: Names of dropout rates in the configuration. The first one is read.
        defaults: Defaults of values that its configuration in `transformers` does not know.
        required: Values that the backbone computes, by names in the configuration. A function
            computes the value from the sizes in the configuration.
        encoder_class: How the name of the class without a head ends.
        when_gated: Layers with other names if the feed-forward networks are gated.
        zeros: Names of weights that only the backbone or the task has, and that are zero.
        unused: Beginnings of names of weights that the encoder does not use.
        tied: Names of copies of the token embeddings.
        heads: The same for the layers of heads, by how the names of their classes end.
        masked_lm_activation: Activation in `"ForMaskedLM"`, or `None` for that of the encoder.
        interleaves_heads: Whether one matrix has the query, key and value of a head, then those of
            the next head.
        pairs_neighbors: Whether rotary positions turn the numbers `2k` and `2k + 1` of a head.
    """

    name: str
    base: str
    layers: Mapping[Any, str]
    constants: Config
    names: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    dropout: tuple[str, ...] = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    defaults: Config = dataclasses.field(default_factory=dict)
    required: Config = dataclasses.field(default_factory=dict)
    encoder_class: str = "Model"
    when_gated: Mapping[str, str] = dataclasses.field(default_factory=dict)
    zeros: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    tied: tuple[str, ...] = ()
    heads: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    masked_lm_activation: str | None = None
    interleaves_heads: bool = False
    pairs_neighbors: bool = False

    def with_defaults(self, config: Config, source: str) -> Config:
        """Return the contents of a file as `transformers` reads them, with its defaults.

        Raises:
            ValueError: If the file lacks a size, if `transformers` refuses it, or if another value
                of the file replaces one that is read here.
            ImportError: If `transformers` is not installed.
        """
        given = {name: value for name, value in config.items() if value is not None}
        names, known = self._names(), {**self.defaults, **given}
        if missing := sorted({names[size] for size in _SIZES} - known.keys()):
            raise ValueError(
                f"The configuration of a {config['model_type']!r} must have {', '.join(missing)}. "
                f"Received: {', '.join(given)} in {source}. If `transformers` loads the folder, "
                "`save_pretrained` writes them."
            )
        transformers = import_transformers()
        try:
            # It changes dictionaries of rotary positions.
            found = transformers.AutoConfig.for_model(**copy.deepcopy(known)).to_dict()
        # Each class raises its own errors.
        except Exception as error:
            raise ValueError(
                f"`transformers` must read the configuration of {source}. Received: a "
                f"{config['model_type']!r}, of which it says: {error}. Correct `config.json`."
            ) from error
        read = (*names.values(), *self.required, *self.dropout)
        self.check_values({name: found.get(name) for name in read}, given, source)
        return {name: value for name, value in found.items() if value is not None}

    def backbone_arguments(self, config: Config, source: str) -> Config:
        """Return the arguments of the backbone in a whole configuration.

        Raises:
            ValueError: If it has a value that the backbone does not compute.
        """
        self.check_values(self.required, config, source)
        arguments = {**self.constants, "dropout": config[self.dropout[0]]}
        for ours, theirs in self._names().items():
            arguments[ours] = value = config[theirs]
            if ours.endswith("activation"):
                validation.choice(theirs, value, tuple(ACTIVATIONS))
                arguments[ours] = ACTIVATIONS[value]
        for field in self.fields:
            arguments |= field.read(config)
        return arguments

    def configuration(self, arguments: Config) -> Config:
        """Return the configuration of a backbone, if this type computes it.

        Args:
            arguments: All arguments of the backbone, with lists of what may differ between layers.
        """
        # There, embeddings without a projection have the size of the states.
        size = arguments["embedding_dim"] or arguments["hidden_dim"]
        arguments = {**arguments, "embedding_dim": size}
        config = dict.fromkeys(self.dropout, arguments["dropout"])
        for ours, theirs in self._names().items():
            config[theirs] = value = arguments[ours]
            if ours.endswith("activation"):
                config[theirs] = _THEIR_ACTIVATIONS.get(value, value)
        for field in self.fields:
            config |= field.write(arguments)
        return config | _values(self.required, config)

    def check_values(self, required: Config, config: Config, source: str) -> None:
        """Raise a `ValueError` if a configuration has other values than the required ones."""
        for name, value in _values(required, config).items():
            if config.get(name, value) != value:
                sizes = ("num_heads", "hidden_dim") if callable(required[name]) else ()
                names = [name, *(self._names()[each] for each in sizes)]
                received = ", ".join(f"{each}={config[each]!r}" for each in names)
                raise ValueError(
                    f"`{name}` must be {value!r} in the configuration of a "
                    f"{config['model_type']!r}. Received: {received} in {source}"
                )

    def _names(self) -> dict[str, str]:
        """Return the names in the configuration of the arguments of the backbone."""
        names = {**_NAMES, **self.names}
        if self.constants["segment_encoding"] == "none":
            names["num_segments"] = None
        return {ours: theirs for ours, theirs in names.items() if theirs is not None}


def _values(required: Config, config: Config) -> Config:
    return {name: each(config) if callable(each) else each for name, each in required.items()}
