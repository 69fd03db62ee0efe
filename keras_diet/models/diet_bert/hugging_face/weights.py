"""The weights of a backbone by the names of Hugging Face."""

import dataclasses
import math
import re
import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_diet._arrays import float32_array
from keras_diet._compat import flatten_layers
from keras_diet.models.diet_bert.hugging_face.architecture import Architecture
from keras_diet.models.diet_bert.hugging_face.checkpoint import Checkpoint

# Where our layers are, in a backbone and in each block of its encoder.
_LAYERS = {
    "token_embedding": "token_embedding",
    "position_embedding": "input_encoding.position_embedding",
    "segment_embedding": "input_encoding.segment_embedding",
    "embeddings_layer_norm": "embeddings_layer_norm",
    "embeddings_projection": "embeddings_projection",
    "output_layer_norm": "encoder.output_layer_norm",
    "pooled_dense": "pooled_dense",
}
# In attention.
_OF_TABLE = {"position_table": "table", "position_table_layer_norm": "table.layer_norm"}
_LAYERS_OF_BLOCK = {
    "query": "self_attention.query_dense",
    "key": "self_attention.key_dense",
    "value": "self_attention.value_dense",
    "output": "self_attention.output_dense",
    "position_key": "self_attention.position_denses.c2p",
    "position_query": "self_attention.position_denses.p2c",
    "attention_layer_norm": "self_attention_layer_norm",
    "intermediate": "feedforward_intermediate_dense",
    "gate": "feedforward_gate_dense",
    "feedforward_output": "feedforward_output_dense",
    "feedforward_layer_norm": "feedforward_layer_norm",
}


@dataclasses.dataclass(frozen=True)
class Part:
    """A weight of a backbone as the rows, or some of the rows, of a tensor of Hugging Face.

    Attributes:
        variable: The weight.
        num_inputs: Number of inputs of a kernel. PyTorch's kernels start with the outputs, and
            have heads and features in one axis.
        order: Order of the rows there, or `None`.
        head: The one head of attention that the rows belong to, or `None` for all.
    """

    variable: keras.Variable
    num_inputs: int
    order: np.ndarray | None = None
    head: int | None = None

    @property
    def is_kernel(self) -> bool:
        """Whether the weight is the kernel of a dense layer."""
        return self.variable.name == "kernel"

    @property
    def size(self) -> int:
        """Number of values."""
        shape = self.variable.shape
        return math.prod(shape) // (1 if self.head is None else shape[-2])

    @property
    def num_rows(self) -> int:
        """Number of rows in Hugging Face."""
        if self.variable.name == "bias":
            return self.size
        return self.size // self.num_inputs if self.is_kernel else self.variable.shape[0]

    def to_hugging_face(self) -> np.ndarray:
        """Return the values as they are in Hugging Face."""
        values = float32_array(self.variable)
        if self.head is not None:
            values = values[..., self.head, :]
        if self.is_kernel:
            values = values.reshape(self.num_inputs, -1).T
        elif self.variable.name == "bias":
            values = values.reshape(-1)
        return values if self.order is None else values[self.order]

    def assign(self, rows: np.ndarray) -> None:
        """Set the values from Hugging Face."""
        if self.order is not None:
            rows = rows[np.argsort(self.order)]
        values = rows.T if self.is_kernel else rows
        if self.head is not None:
            of_head, values = values, float32_array(self.variable).copy()
            values[..., self.head, :] = of_head
        self.variable.assign(values.reshape(self.variable.shape))


def parts_of_layer(layer: keras.layers.Layer, order: np.ndarray | None = None) -> dict[str, Part]:
    """Return the weights of a layer by their names in PyTorch, `"weight"` and `"bias"`."""
    parts = {}
    inner = [each for each in flatten_layers(layer) if each is not layer]
    of_inner = {id(weight) for each in inner for weight in each.weights}
    for variable in [weight for weight in layer.weights if id(weight) not in of_inner]:
        shape = variable.shape
        # Only the output of attention has heads among its inputs.
        num_inputs = math.prod(shape[:-1]) if layer.name == "attention_output" else shape[0]
        name = "bias" if variable.name in ("bias", "beta") else "weight"
        parts[name] = Part(variable, num_inputs, order)
    return parts


def parts_by_name(backbone: keras.Model, architecture: Architecture) -> dict[str, list[Part]]:
    """Return all weights of a backbone by the names of Hugging Face's encoder."""
    layers = dict(architecture.layers)
    if getattr(backbone.encoder, "gated", False):
        layers |= architecture.when_gated
    found: dict[str, list[Part]] = {}
    for names, theirs in layers.items():
        # Layers that share their weights have one name.
        for block in range(backbone.num_layers) if "{}" in theirs else [0]:
            for name in names if isinstance(names, tuple) else [names]:
                layer = _layer(backbone, name, block)
                order = None
                if architecture.pairs_neighbors and name in ("query", "key"):
                    order = _order_of_neighbors(backbone)
                for kind, part in parts_of_layer(layer, order).items() if layer else ():
                    found.setdefault(f"{theirs.format(block)}.{kind}", []).append(part)
    if architecture.interleaves_heads:
        found = _with_interleaved_heads(found, backbone.num_heads)
    return {
        name: parts
        for name, parts in found.items()
        if re.sub(r"\.\d+\.", ".{}.", name) not in architecture.zeros
    }


def _with_interleaved_heads(found, num_heads):
    """Return the weights of the first DeBERTa.

    The query, key and value of a head are next to each other, and biases have names of their own.
    """
    result = {}
    for name, parts in found.items():
        if name.endswith("in_proj.bias"):
            for kind, part in zip("qkv", parts, strict=True):
                result[name.replace("in_proj.bias", f"{kind}_bias")] = [part]
        elif name.endswith("in_proj.weight"):
            heads = range(num_heads)
            result[name] = [dataclasses.replace(each, head=h) for h in heads for each in parts]
        else:
            result[name] = parts
    return result


def _layer(backbone, name, block):
    """Return a layer by our name, or `None` if the backbone has none."""
    if name in _LAYERS_OF_BLOCK:
        owner: Any = backbone.encoder.transformer_layers[block]
        path = _LAYERS_OF_BLOCK[name]
    elif name == "position_bias":
        return backbone.encoder.position_biases[0]
    elif name.startswith("position_table"):
        owner, path = backbone.encoder.transformer_layers[0].self_attention, _OF_TABLE[name]
    else:
        owner, path = backbone, _LAYERS[name]
    for attribute in path.split("."):
        is_dict = isinstance(owner, dict)
        owner = owner.get(attribute) if is_dict else getattr(owner, attribute, None)
    return owner


def _order_of_neighbors(backbone):
    """Return the rows of queries in an order in which neighbors turn together."""
    head_dim = backbone.hidden_dim // backbone.num_heads
    of_head = np.arange(head_dim).reshape(2, -1).T.reshape(-1)
    return (np.arange(backbone.num_heads)[:, None] * head_dim + of_head).reshape(-1)


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
    parts = parts_by_name(backbone, architecture)
    pooler = architecture.layers.get("pooled_dense")
    if pooler is None or f"{pooler}.weight" not in tensors:
        parts = {name: part for name, part in parts.items() if not name.startswith(f"{pooler}.")}
        warnings.warn(
            f"{checkpoint.source} has no pooler. `pooled_output` comes from new weights, so train "
            "it before you use it.",
            stacklevel=4,
        )
    for names, kind in (
        (parts.keys() - tensors.keys(), "lacks weights that the"),
        (tensors.keys() - parts.keys(), "has weights that no"),
    ):
        if names:
            raise ValueError(
                f"{checkpoint.source} {kind} encoder of the type and the sizes in its "
                f"configuration has. Received: {', '.join(sorted(names)[:3])}"
            )
    for name, of_tensor in parts.items():
        _assign(of_tensor, tensors[name], name, checkpoint.source)


def _assign(parts: Sequence[Part], tensor: np.ndarray, name: str, source: str) -> None:
    """Set weights from the rows of a tensor."""
    num_rows = [part.num_rows for part in parts]
    size = sum(part.size for part in parts)
    if len(tensor) != sum(num_rows) or tensor.size != size:
        raise ValueError(
            f"`{name}` in {source} must have {sum(num_rows)} rows and {size} numbers by its "
            f"configuration. Received: shape {tensor.shape}"
        )
    for part, rows in zip(parts, np.split(tensor, np.cumsum(num_rows)[:-1]), strict=True):
        part.assign(rows)
