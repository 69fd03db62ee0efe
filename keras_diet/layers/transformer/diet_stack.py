"""What stacks of blocks have in common: their arguments, their layers, and the score terms."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import keras

from keras_diet import validation
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.biased_multi_head_attention import BiasedMultiHeadAttention
from keras_diet.layers.attention.linformer_multi_head_attention import LinformerMultiHeadAttention
from keras_diet.layers.attention.plan import IMPLEMENTATIONS, AttentionPlan, check_implementation
from keras_diet.layers.attention.prepared_terms import (
    PreparedTerms,
    fold_masks,
    lower_bias,
    prepare_masks,
)
from keras_diet.layers.attention.score_terms import FeaturePair, ScoreTerms
from keras_diet.layers.configuration import takes_arguments_of
from keras_diet.layers.position.input_encoding import make_input_encoding
from keras_diet.layers.position.position_bias import reads_content
from keras_diet.layers.position.position_encoding import (
    OPTIONAL_ARGUMENTS,
    PositionEncoding,
    call_named,
)
from keras_diet.layers.position.rope_scaling import rope_scaling_of
from keras_diet.layers.transformer.cached_positions import (
    CachedPositionBias,
    arguments_of_copy,
    copy_weights,
)
from keras_diet.layers.transformer.position_encodings import find_position_encoding
from keras_diet.layers.transformer.recomputed_call import RECOMPUTE
from keras_diet.layers.transformer.transformer_block import TransformerLayer, takes_score_terms
from keras_diet.types import Config, Shape, Tensor


class DietStack(TransformerLayer):
    """Base class of a stack: its arguments, the layers beside its blocks, and the score terms.

    `DietEncoder` and `DietDecoder` document the arguments.
    """

    # Number of projected keys of Linformer, which only an encoder can have.
    projection_dim: int | None = None
    # Bias layers of the attention to a source, which only a decoder has.
    cross_position_biases: Any = ()

    @takes_arguments_of(TransformerLayer)
    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        position_encoding: str | keras.layers.Layer = "diet_abs",
        rank: int | None = None,
        sharing: str | None = None,
        max_sequence_length: int = 512,
        attention_implementation: str = "auto",
        encode_inputs: bool = True,
        cached_positions: bool = False,
        max_distance: int | None = None,
        recompute: str = "none",
        attention_windows: Any = None,
        attention_scale: float | None = None,
        max_wavelength: Any = None,
        rope_scaling: Any = None,
        initial_score_stddev: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(intermediate_dim, num_heads, **kwargs)
        if cached_positions and isinstance(position_encoding, keras.layers.Layer):
            # Keras would track the weights of the layer, although its scores are cached.
            position_encoding = CachedPositionBias.like(position_encoding)
        self.num_layers = validation.positive_int("num_layers", num_layers)
        self.position_encoding = position_encoding
        self.rank = validation.optional_positive_int("rank", rank)
        self.sharing = sharing
        self.max_sequence_length = validation.positive_int(
            "max_sequence_length", max_sequence_length
        )
        self.attention_implementation = validation.choice(
            "attention_implementation", attention_implementation, IMPLEMENTATIONS
        )
        self.encode_inputs = encode_inputs
        self.cached_positions = cached_positions
        self.max_distance = validation.optional_positive_int("max_distance", max_distance)
        self.recompute = validation.choice("recompute", recompute, RECOMPUTE)
        self.attention_windows = _of_layers(
            "attention_windows", attention_windows, validation.optional_positive_int
        )
        self.attention_scale = validation.optional_positive_number(
            "attention_scale", attention_scale
        )
        self.max_wavelength = _of_layers(
            "max_wavelength", max_wavelength, validation.positive_number
        )
        self.rope_scaling = _of_layers("rope_scaling", rope_scaling, rope_scaling_of)
        self.initial_score_stddev = validation.optional_positive_number(
            "initial_score_stddev", initial_score_stddev
        )
        optional = {name: getattr(self, name) for name in OPTIONAL_ARGUMENTS}
        self.encoding = find_position_encoding(position_encoding, sharing=sharing, **optional)

    # === Layers ===

    def arguments_of_encoding(
        self, encoding: PositionEncoding, hidden_dim: Any, is_causal: bool = False
    ) -> Config:
        """Return the arguments that the functions of a `PositionEncoding` may name."""
        arguments = {
            "num_heads": self.num_heads,
            "key_dim": self.size_of_heads(hidden_dim),
            "max_length": self.max_sequence_length,
            "is_causal": is_causal,
            **{name: getattr(self, name) for name in OPTIONAL_ARGUMENTS},
        }
        if encoding.table is None:
            return arguments
        others = {"dtype": self.dtype_policy, "name": "position_table"}
        table = call_named(encoding.table, arguments, **others)
        table.build((None, hidden_dim))
        return {**arguments, "table": table}

    def build_input_encoding(self, inputs_shape: Shape, num_segments: int | None = None) -> None:
        """Create and build the layer that adds positions and segments to the inputs, if any."""
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: inputs_shape[-1]})
        self.input_encoding = None
        if self.encode_inputs:
            self.input_encoding = make_input_encoding(
                self.encoding, self.max_sequence_length, num_segments, dtype=self.dtype_policy
            )
        if self.input_encoding is not None:
            self.input_encoding.build(inputs_shape)

    def make_position_biases(
        self, encoding: PositionEncoding, arguments: Config, prefix: str = ""
    ) -> list[keras.layers.Layer]:
        """Return bias layers: none, one for all layers of the stack, or one for each.

        Their names begin with `prefix`.
        """
        if encoding.bias is None:
            return []
        sharing = self.sharing or encoding.sharing_modes[0]
        others: Config = {"share_heads": True} if sharing == "head-wise" else {}
        others["dtype"] = self.dtype_policy
        names = [f"{prefix}position_bias_{i}" for i in range(self.num_layers)]
        if sharing == "layer-wise":
            names = [f"{prefix}position_bias"]
        biases = [call_named(encoding.bias, arguments, name=name, **others) for name in names]
        return list(map(CachedPositionBias.like, biases)) if self.cached_positions else biases

    def make_attention(
        self,
        encoding: PositionEncoding,
        arguments: Config,
        biases: list[keras.layers.Layer],
        name: str,
        index: int,
    ) -> keras.layers.Layer:
        """Return an attention layer of block `index`, to whose scores bias layers are added."""
        others = {"dropout": self.dropout_of_probabilities, "name": name}
        others |= self.arguments_of_dense()
        of_layers = ("max_wavelength", "rope_scaling")
        arguments = arguments | {n: _of_layer(getattr(self, n), index) for n in of_layers}
        if self.attention_scale is not None:
            others["scale"] = self.attention_scale
        elif encoding.scale is not None:
            others["scale"] = call_named(encoding.scale, arguments)
        make = encoding.attention or BiasedMultiHeadAttention
        if encoding.attention is None and self.projection_dim is not None:
            make = LinformerMultiHeadAttention
            others["sequence_length"] = self.max_sequence_length
        attention = call_named(make, arguments, **others)
        check_implementation(
            self.attention_implementation, attention, biases[0] if biases else None
        )
        return attention

    def arguments_of_block(self, index: int = 0) -> Config:
        """Return the arguments of block `index`. Each call makes new initializers."""
        arguments = {**super().arguments_of_block(), "name": f"transformer_layer_{index}"}
        arguments["normalize_inputs"] = self.normalize_inputs or index > 0
        return {**arguments, "recompute_attention": self.recompute == "attention"}

    def build_output_layer_norm(self, inputs_shape: Shape) -> None:
        """Create and build the last layer normalization, which pre-norm blocks need."""
        self.output_layer_norm = None
        if self.normalize_first:
            self.output_layer_norm = self.make_layer_norm("output_layer_norm", inputs_shape)

    def all_position_biases(self) -> list[keras.layers.Layer]:
        """Return the bias layers of all attention layers."""
        return [*self.position_biases, *self.cross_position_biases]

    def with_cached_positions(self) -> Self:
        """Return a copy for inference. See `keras_diet.layers.cache_positions`, which calls it."""
        biases = self.all_position_biases()
        changes = arguments_of_copy(self.attention_implementation)
        copy = self.from_config({**self.get_config(), **changes})
        copy.build_from_config(self.get_build_config())
        copy_weights(self, copy, biases, copy.all_position_biases())
        return copy

    # === Calls ===

    def call_blocks(
        self, x: Tensor, of_blocks: Iterable[Config], *arguments: Any
    ) -> tuple[Tensor, list[list[Any]]]:
        """Return the output of all blocks, and lists of what they return beside it.

        Args:
            x: Hidden states `(B, T, hidden_dim)`.
            of_blocks: The keyword arguments of each block, which are made one by one.
            *arguments: Other inputs of all blocks.
        """
        others, recompute = [], self.recompute == "block"
        for block, of_block in zip(self.transformer_layers, of_blocks, strict=True):
            outputs = self.call_layer(block, recompute, x, *arguments, **of_block)
            x, *others_of_block = outputs if isinstance(outputs, tuple) else (outputs,)
            others.append(others_of_block)
        if self.output_layer_norm is not None:
            x = self.output_layer_norm(x)
        return x, [list(each) for each in zip(*others, strict=True)]

    def terms_of_layers(
        self,
        inputs: Tensor,
        terms: ScoreTerms,
        attention_name: str,
        position_biases: list[keras.layers.Layer],
        segment_features: Sequence[Callable[..., FeaturePair]] | None = None,
        pair_scores: Sequence[Callable[[], Tensor]] | None = None,
        key: Tensor | None = None,
        positions: Tensor | None = None,
        coordinates: Tensor | None = None,
        attention_hook: AttentionHook | None = None,
        **arguments: Any,
    ) -> Iterator[PreparedTerms]:
        """Yield the prepared terms of each layer.

        Layers with the same window have the same plan and mask. Terms are made one by one, so that
        only the terms of one layer are in memory at inference. A bias that all layers share is
        computed once, and once for each window it gets the masks that a kernel takes with it. A
        bias that reads the content stays a layer, which attention asks with its states.

        Args:
            inputs: Hidden states `(B, T, hidden_dim)`.
            terms: Masks and the position of the first query, the same for all layers.
            attention_name: Name of the attention layer of each block.
            position_biases: No bias layer, one for all layers, or one for each.
            segment_features: `None`, or for each layer a function that returns the features of its
                segment bias.
            pair_scores: `None`, or for each layer a function that returns its scores of pairs.
            key: Tensor `(B, S, ...)` with the number of keys, or `None` for the inputs.
            positions: Positions `(B, T)` of tokens in their documents, or `None`.
            coordinates: Coordinates `(B, T, n)` that the position biases read, or `None`.
            attention_hook: A hook for all layers, or `None`.
            **arguments: Other arguments of `BiasedMultiHeadAttention.plan`.
        """
        attentions = [getattr(block, attention_name) for block in self.transformer_layers]
        arguments |= {
            "implementation": self.attention_implementation,
            "attention_hook": attention_hook,
        }
        up_to_softmax = not any(_reads_scores(each, attention_hook) for each in attentions)
        is_shared = len(position_biases) == 1 and not pair_scores
        windows = self.attention_windows if attention_name == "self_attention" else None
        of_windows: dict[int | None, PreparedTerms] = {}
        for i, attention in enumerate(attentions):
            if coordinates is None:
                bias = position_biases[i % len(position_biases)] if position_biases else None
            elif i < len(position_biases):
                bias = position_biases[i](coordinates)
            pairs = pair_scores[i]() if pair_scores else None
            segments: tuple[FeaturePair, ...] = ()
            if segment_features:
                segments = (segment_features[i](up_to_softmax=up_to_softmax),)
            window = _of_layer(windows, i)
            if window is None and takes_score_terms(attention):
                window = attention.sliding_window
            if window not in of_windows:
                of_window = terms.replace(sliding_window=window)
                # A custom attention layer gets all terms in one bias.
                plan = AttentionPlan("scores")
                if takes_score_terms(attention):
                    all_terms = of_window.replace(bias=bias, features=segments, pair_scores=pairs)
                    plan = attention.plan(all_terms, inputs.shape, **arguments)
                of_windows[window] = prepare_masks(of_window, plan, inputs, key, positions)
            # A window changes the plan only without a bias.
            if i == 0 or not is_shared:
                of_bias = of_windows[window].replace(bias=bias, pair_scores=pairs)
                if not reads_content(bias):
                    of_bias = lower_bias(of_bias, inputs, key)
                folded: dict[int | None, PreparedTerms] = {}
            if window not in folded:
                names = ("bias", "features", "by_distance", "pair_scores")
                with_bias = {name: getattr(of_bias, name) for name in names}
                folded[window] = fold_masks(of_windows[window].replace(**with_bias), inputs, key)
            yield folded[window].replace(features=(*segments, *of_bias.features))


def _of_layers(name, value, check):
    """Return the value of an argument for all layers, or a list that repeats along them."""
    if not isinstance(value, (tuple, list)):
        return None if value is None else check(name, value)
    if not value:
        raise ValueError(f"`{name}` must have a value for each layer. Received: {name}={value!r}")
    return [check(name, each) for each in value]


def _of_layer(value, index):
    """Return the value that `_of_layers` has for a layer."""
    return value[index % len(value)] if isinstance(value, list) else value


def _reads_scores(attention, attention_hook):
    """Whether anybody but softmax sees the scores, so that they must be complete."""
    if not takes_score_terms(attention):
        return True
    hooks = (attention.attention_hook(), attention_hook)
    return any(hook is not None and hook.scores is not None for hook in hooks)
