"""Linformer: attention over keys and values that are projected along the sequence."""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_diet import _backend, validation
from keras_diet._compat import get_keras_mask
from keras_diet.layers.attention.biased_multi_head_attention import BiasedMultiHeadAttention
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.score_terms import ScoreTerms, all_of, terms_of_arguments
from keras_diet.layers.initializers import add_weight
from keras_diet.types import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class LinformerMultiHeadAttention(BiasedMultiHeadAttention):
    """Multi-head attention over `projection_dim` projected keys and values (Linformer).

    For each head, with query `i` and projected key `j < projection_dim` (equation 4 of the paper):

        A_ij = scale (x_i W_Q) . ((E Y)_j W_K) + attention_bias_ij
        output_i = softmax_j(A_ij) ((F Z)_j W_V), heads concatenated, times W_O

    where `E = key_projection` and `F = value_projection` have the shape
    `(projection_dim, sequence_length)`. All heads share them. A sequence of `S` tokens uses the
    first `S` columns. Time and memory are linear in the length. With a bias
    `AbsolutePositionBias(..., key_length=projection_dim)` this is DIET-ABS-LIN.

    The layer sets padding to zero before the projection, so padded tokens do not change the output.
    A projected key mixes all tokens, so masks of query-key pairs raise a `ValueError`.

    Args:
        num_heads: int. Number of attention heads `H`.
        key_dim: int. Size of each head for query and key.
        sequence_length: int. Longest sequence of keys and values `n`, in tokens.
        projection_dim: int. Number of projected keys and values. The paper uses 32 and 256.
        **kwargs: Keyword arguments of `BiasedMultiHeadAttention`, without `attention_axes` and
            `sliding_window`. `kernel_initializer` also initializes the projections.

    Call arguments:
        query: Tensor of shape `(B, T, dim)`.
        value: Tensor of shape `(B, S, dim)`.
        key: Tensor of shape `(B, S, dim)`, or `None` for `value`.
        attention_bias: Tensor broadcastable to `(B, num_heads, T, projection_dim)`, or `None`.
        attention_mask: Must be `None`.
        query_mask: Keras mask of the query, `(B, T)`. Set by Keras.
        value_mask: Boolean mask `(B, S)`, `False` for padding. Set by Keras.
        key_mask: Boolean mask `(B, S)`, `False` for padding. Set by Keras.
        return_attention_scores: bool. Whether to return the probabilities too.
        training: bool. Whether dropout is active.
        use_causal_mask: Must be `False`.
        projected_keys: Must be `None`.

    Returns:
        Output of shape `(B, T, dim)`, or a tuple of it and the attention probabilities of shape
        `(B, num_heads, T, projection_dim)` if `return_attention_scores`.

    Raises:
        ValueError: If a size is not a positive integer; if `attention_axes`, `sliding_window`,
            `attention_mask` or `use_causal_mask` is given; if the inputs do not have one sequence
            axis; or if there are more than `sequence_length` keys.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    attention = keras_diet.layers.LinformerMultiHeadAttention(
        num_heads=4, key_dim=8, sequence_length=64, projection_dim=6
    )
    position_bias = keras_diet.layers.AbsolutePositionBias(4, 64, rank=8, key_length=6)
    y = attention(x, x, attention_bias=position_bias(x, key=np.zeros((1, 6))))
    ```

    References:
     - [Wang et al., 2020](https://arxiv.org/abs/2006.04768)
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), section 3.4, equation 4
    """

    # Projected keys make long sequences cheap, so the layer does not need other implementations.
    implementations = ("auto", "full")
    # A projected key mixes all tokens, also those that are not decoded yet.
    takes_projected_keys = False

    def __init__(
        self, num_heads: int, key_dim: int, sequence_length: int, projection_dim: int, **kwargs: Any
    ) -> None:
        super().__init__(num_heads, key_dim, **kwargs)
        self.sequence_length = validation.positive_int("sequence_length", sequence_length)
        self.projection_dim = validation.positive_int("projection_dim", projection_dim)
        _refuse_pairs(sliding_window=self.sliding_window)

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        """Create the projections."""
        super().build(query_shape, value_shape, key_shape)
        shape = (self.projection_dim, self.sequence_length)
        initializer = self.key_dense.kernel_initializer
        self.key_projection = add_weight(self, "key_projection", shape, initializer)
        self.value_projection = add_weight(self, "value_projection", shape, initializer)

    def plan(self, terms: ScoreTerms, *args: Any, **kwargs: Any) -> AttentionPlan:
        """Return how this layer computes attention over the projected keys."""
        plan = super().plan(terms.replace(padding_mask=None), *args, **kwargs)
        # The padding of a stack's terms is for the keys before their projection.
        return dataclasses.replace(plan, masks_padding=True)

    def keys_and_terms(
        self, key: Tensor, value: Tensor, score_terms: ScoreTerms | None, **arguments: Any
    ) -> tuple[Tensor, Tensor, ScoreTerms]:
        """Return the projected keys and values, without padding, and the terms of their scores."""
        masks = [arguments["value_mask"], arguments["key_mask"], *map(get_keras_mask, (value, key))]
        pairs = score_terms or ScoreTerms(
            attention_mask=arguments["attention_mask"], is_causal=arguments["use_causal_mask"]
        )
        _refuse_pairs(
            attention_mask=pairs.attention_mask,
            use_causal_mask=pairs.is_causal,
            sliding_window=pairs.sliding_window,
            document_ids=pairs.document_ids,
        )
        if score_terms is None:
            score_terms = terms_of_arguments(**{**arguments, "value_mask": None, "key_mask": None})
        length = ops.shape(value)[1]
        validation.length_within(length, self.sequence_length, "sequence_length", "key")
        masks.append(score_terms.padding_mask)
        mask = all_of(masks)
        key = self._project(self.key_projection, key, mask)
        value = self._project(self.value_projection, value, mask)
        return key, value, score_terms.replace(padding_mask=None)

    def _project(self, projection, inputs, mask):
        length = ops.shape(inputs)[1]
        if mask is not None:
            inputs = ops.where(ops.expand_dims(mask, -1), inputs, 0.0)
        columns = _backend.slice(
            ops.convert_to_tensor(projection), (0, 0), (self.projection_dim, length)
        )
        # p: projected positions; s: positions; b: batch; d: features
        return ops.einsum("ps,bsd->bpd", ops.cast(columns, inputs.dtype), inputs)

    def compute_output_spec(
        self, query: Tensor, value: Tensor, key: Tensor | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Return the symbolic output, and the symbolic scores if the caller asks for them."""
        shape = (value.shape[0], self.projection_dim, value.shape[2])
        projected = keras.KerasTensor(shape, dtype=value.dtype)
        return super().compute_output_spec(query, projected, None, *args, **kwargs)


def _refuse_pairs(**arguments):
    """Raise a `ValueError` for masks of query-key pairs. A projected key mixes all tokens."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise ValueError(
                f"`{name}` is not supported by Linformer: a projected key mixes all tokens. "
                f"Received: {name} of the type {type(value).__name__}. Exclude padding with a "
                "mask of the tokens."
            )
