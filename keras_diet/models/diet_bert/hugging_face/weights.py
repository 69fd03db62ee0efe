"""From a trained encoder of Hugging Face to a backbone with the same outputs, and back."""

import dataclasses
import math
import os
import re
import warnings
from typing import Any

import keras
import numpy as np

from keras_diet._backend import float32_array
from keras_diet._compat import flatten_layers
from keras_diet.models.diet_bert.hugging_face.architecture import Architecture
from keras_diet.models.diet_bert.hugging_face.architectures import ARCHITECTURES, type_of
from keras_diet.models.diet_bert.hugging_face.checkpoint import Checkpoint, read_checkpoint
from keras_diet.types import DType

# === Backbone ===


def read_backbone(
    cls: type[keras.Model],
    source: str | os.PathLike[str] | Any,
    *,
    dropout: float | None = None,
    attention_implementation: str = "auto",
    recompute: str = "none",
    dtype: DType = None,
    name: str | None = None,
    trainable: bool | None = None,
) -> Any:
    """Build a backbone with the weights and the outputs of a trained encoder of Hugging Face.

    The `model_type` of its configuration chooses the arguments, e.g. `"roberta"`, `"mpnet"`,
    `"modernbert"` or `"t5"`, of which only the encoder is read. The page on
    trained encoders lists all types.

    Args:
        source: A folder with `config.json` and `model.safetensors`, which may be divided into
            several files, or a model of `transformers`.
        dropout: float or `None`. As in the class. Defaults to `None`, which means that of the
            configuration.
        attention_implementation: As in the class. Defaults to `"auto"`.
        recompute: As in the class. Defaults to `"none"`.
        dtype: As in the class. Defaults to `None`.
        name: As in the class.
        trainable: As in the class.

    Returns:
        A `DietBertBackbone`.

    Raises:
        ValueError: If `source` is something else, or if its type is unknown. If its configuration
            lacks a size, if `transformers` refuses it, or if it has a value that the backbone does
            not compute. If weights are missing or left over, or if the folder has no weights in
            the format of safetensors.
        ImportError: If `transformers` is not installed.

    Example:

    ```python
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64,
    )
    backbone = keras_diet.models.DietBertBackbone.from_hugging_face(transformers.BertModel(config))
    ```
    """
    checkpoint = read_checkpoint(source)
    if checkpoint is None:
        raise ValueError(
            "`source` must be a folder with Hugging Face's `config.json` and `model.safetensors`, "
            f"or a model of `transformers`. Received: source={source!r}. For a preset, call "
            "`from_preset`."
        )
    arguments = {
        "attention_implementation": attention_implementation,
        "recompute": recompute,
        "dtype": dtype,
        "name": name,
        "trainable": trainable,
    }
    if dropout is not None:
        arguments["dropout"] = dropout
    return backbone_of_checkpoint(cls, checkpoint, **arguments)


def backbone_of_checkpoint(cls: type[keras.Model], checkpoint: Checkpoint, **arguments: Any) -> Any:
    """Return the backbone of a checkpoint. Arguments replace those of its configuration."""
    model_type = type_of(checkpoint.config)
    architecture = ARCHITECTURES[model_type]
    of_config = architecture.backbone_arguments(checkpoint.config, checkpoint.source)
    backbone = cls(**{**of_config, **arguments})
    set_weights(backbone, checkpoint, architecture)
    backbone.hugging_face_type = model_type
    return backbone


# === Weights ===

# Where our layers are in a backbone. `{}` is the number of the block.
_BLOCK = "encoder.transformer_layers.{}"
_LAYERS = {
    "token_embedding": "token_embedding",
    "position_embedding": "input_encoding.position_embedding",
    "segment_embedding": "input_encoding.segment_embedding",
    "embeddings_layer_norm": "embeddings_layer_norm",
    "embeddings_projection": "embeddings_projection",
    "position_bias": "encoder.position_biases.0",
    "position_table": "encoder.transformer_layers.0.self_attention.table",
    "position_table_layer_norm": "encoder.transformer_layers.0.self_attention.table.layer_norm",
    "query": f"{_BLOCK}.self_attention.query_dense",
    "key": f"{_BLOCK}.self_attention.key_dense",
    "value": f"{_BLOCK}.self_attention.value_dense",
    "output": f"{_BLOCK}.self_attention.output_dense",
    "position_key": f"{_BLOCK}.self_attention.position_denses.c2p",
    "position_query": f"{_BLOCK}.self_attention.position_denses.p2c",
    "attention_layer_norm": f"{_BLOCK}.self_attention_layer_norm",
    "intermediate": f"{_BLOCK}.feedforward_intermediate_dense",
    "gate": f"{_BLOCK}.feedforward_gate_dense",
    "feedforward_output": f"{_BLOCK}.feedforward_output_dense",
    "feedforward_layer_norm": f"{_BLOCK}.feedforward_layer_norm",
    "output_layer_norm": "encoder.output_layer_norm",
    "pooled_dense": "pooled_dense",
}


@dataclasses.dataclass(frozen=True)
class Part:
    """One of our weights, which is some or all of the rows of a tensor of Hugging Face.

    Attributes:
        variable: The weight.
        num_inputs: Number of inputs of a kernel. PyTorch's kernels start with the outputs, and
            have heads and features in one axis.
    """

    variable: keras.Variable
    num_inputs: int

    @property
    def num_rows(self) -> int:
        """Number of rows in Hugging Face."""
        shape = self.variable.shape
        if self.variable.name == "kernel":
            return math.prod(shape) // self.num_inputs
        return math.prod(shape) if self.variable.name == "bias" else shape[0]

    def rows(self) -> np.ndarray:
        """Return the values as they are in Hugging Face."""
        values = float32_array(self.variable)
        if self.variable.name == "kernel":
            return values.reshape(self.num_inputs, -1).T
        return values.reshape(-1) if self.variable.name == "bias" else values

    def assign(self, rows: np.ndarray) -> None:
        """Set the values from Hugging Face."""
        values = rows.T if self.variable.name == "kernel" else rows
        self.variable.assign(values.reshape(self.variable.shape))


@dataclasses.dataclass(frozen=True)
class TheirTensor:
    """A tensor of Hugging Face, which holds the rows of some of our weights.

    Attributes:
        parts: Our weights.
        order: The index of our row at each place there, or `None` for the same order.
    """

    parts: list[Part]
    order: np.ndarray | None = None

    def values(self) -> np.ndarray:
        """Return the values as they are in Hugging Face."""
        rows = np.concatenate([part.rows() for part in self.parts])
        # safetensors writes the memory of an array as it is, also of a transposed one.
        return np.ascontiguousarray(rows if self.order is None else rows[self.order])

    def assign(self, values: np.ndarray, name: str, source: str) -> None:
        """Set our weights from Hugging Face.

        Raises:
            ValueError: If the tensor has another size.
        """
        ends = np.cumsum([part.num_rows for part in self.parts])
        size = sum(math.prod(part.variable.shape) for part in self.parts)
        if len(values) != ends[-1] or values.size != size:
            raise ValueError(
                f"`{name}` in {source} must have {ends[-1]} rows and {size} numbers by its "
                f"configuration. Received: shape {values.shape}"
            )
        if self.order is not None:
            values = values[np.argsort(self.order)]
        for part, rows in zip(self.parts, np.split(values, ends[:-1]), strict=True):
            part.assign(rows)


def parts_of_layer(layer: keras.layers.Layer) -> dict[str, Part]:
    """Return the weights of a layer by their names in PyTorch, `"weight"` and `"bias"`."""
    parts = {}
    inner = [each for each in flatten_layers(layer) if each is not layer]
    of_inner = {id(weight) for each in inner for weight in each.weights}
    for variable in [weight for weight in layer.weights if id(weight) not in of_inner]:
        shape = variable.shape
        # Only the output of attention has heads among its inputs.
        num_inputs = math.prod(shape[:-1]) if layer.name == "attention_output" else shape[0]
        name = "bias" if variable.name in ("bias", "beta") else "weight"
        parts[name] = Part(variable, num_inputs)
    return parts


def tensors_by_name(backbone: keras.Model, architecture: Architecture) -> dict[str, TheirTensor]:
    """Return all weights of a backbone by the names of Hugging Face's encoder."""
    layers = dict(architecture.layers)
    if getattr(backbone.encoder, "gated", False):
        layers |= architecture.when_gated
    found: dict[str, TheirTensor] = {}
    for names, theirs in layers.items():
        # Layers that share their weights have one name.
        for block in range(backbone.num_layers) if "{}" in theirs else [0]:
            parts: dict[str, list[Part]] = {}
            for name in names if isinstance(names, tuple) else [names]:
                layer = _layer(backbone, name, block)
                for kind, part in parts_of_layer(layer).items() if layer else ():
                    parts.setdefault(kind, []).append(part)
            where, order = theirs.format(block), _order_of_rows(backbone, architecture, names)
            if architecture.interleaves_heads and isinstance(names, tuple):
                # Biases have names of their own.
                for letter, part in zip("qkv", parts.pop("bias"), strict=True):
                    found[where.replace("in_proj", f"{letter}_bias")] = TheirTensor([part])
            found |= {f"{where}.{kind}": TheirTensor(parts[kind], order) for kind in parts}
    return {
        name: tensor
        for name, tensor in found.items()
        if re.sub(r"\.\d+\.", ".{}.", name) not in architecture.zeros
    }


def _layer(backbone, name, block):
    """Return a layer by our name, or `None` if the backbone has none."""
    owner: Any = backbone
    for step in _LAYERS[name].format(block).split("."):
        if isinstance(owner, list):
            owner = owner[int(step)]
        else:
            owner = owner.get(step) if isinstance(owner, dict) else getattr(owner, step, None)
    return owner


def _order_of_rows(backbone, architecture, names):
    """Return the index of our row at each place in Hugging Face, or `None`."""
    num_heads = backbone.num_heads
    if architecture.pairs_neighbors and names in ("query", "key"):
        # The numbers that turn together are next to each other.
        return np.arange(backbone.hidden_dim).reshape(num_heads, 2, -1).swapaxes(1, 2).reshape(-1)
    if architecture.interleaves_heads and isinstance(names, tuple):
        # The query, key and value of a head are next to each other.
        return np.arange(3 * backbone.hidden_dim).reshape(3, num_heads, -1).swapaxes(0, 1).ravel()
    return None


def encoder_tensors(checkpoint: Checkpoint, architecture: Architecture) -> dict[str, np.ndarray]:
    """Return the weights of the encoder by their names in a model without a head."""
    tensors = checkpoint.tensors
    prefix = f"{architecture.base}."
    of_encoder = {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
    # A model without a head has no prefix.
    found = of_encoder or tensors
    # Files have the frequencies of rotary positions, which are computed here.
    unused = [name for name in found if name.endswith("rotary_embeddings.inv_freq")]
    unused += [name for name in found if name.startswith(architecture.unused)]
    return {name: found[name] for name in found if name not in unused}


def check_tied(checkpoint: Checkpoint, architecture: Architecture, *names: str) -> None:
    """Raise a `ValueError` if weights with these names are not the token embeddings."""
    embeddings = f"{architecture.layers['token_embedding']}.weight"
    for name in checkpoint.tensors.keys() & set(names):
        expected = encoder_tensors(checkpoint, architecture)[embeddings]
        if not np.array_equal(checkpoint.tensors[name], expected):
            raise ValueError(
                f"`{name}` must equal the token embeddings, which the library uses in its place. "
                f"Received: other values in {checkpoint.source}, from a model whose embeddings are "
                "not tied."
            )


def set_weights(backbone: keras.Model, checkpoint: Checkpoint, architecture: Architecture) -> None:
    """Give the weights of a checkpoint to a backbone with the arguments of its configuration.

    Raises:
        ValueError: If the checkpoint has other weights of the encoder than the backbone.
    """
    tensors = encoder_tensors(checkpoint, architecture)
    check_tied(checkpoint, architecture, *architecture.tied)
    ours = tensors_by_name(backbone, architecture)
    pooler = architecture.layers.get("pooled_dense")
    if pooler is None or f"{pooler}.weight" not in tensors:
        ours = {name: each for name, each in ours.items() if not name.startswith(f"{pooler}.")}
        warnings.warn(
            f"{checkpoint.source} has no pooler. `pooled_output` comes from new weights, so train "
            "it before you use it.",
            stacklevel=4,
        )
    for names, kind in (
        (ours.keys() - tensors.keys(), "lacks weights that the"),
        (tensors.keys() - ours.keys(), "has weights that no"),
    ):
        if names:
            raise ValueError(
                f"{checkpoint.source} {kind} encoder of the type and the sizes in its "
                f"configuration has. Received: {', '.join(sorted(names)[:3])}"
            )
    for name, tensor in ours.items():
        tensor.assign(tensors[name], name, checkpoint.source)
