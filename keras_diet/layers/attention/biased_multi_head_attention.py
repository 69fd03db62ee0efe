"""Multi-head attention that takes an additive score bias."""

from typing import Any

import keras

from keras_diet import _backend, validation
from keras_diet._compat import OpenMultiHeadAttention, get_keras_mask, set_keras_mask
from keras_diet.layers.attention.attention_hook import AttentionHook, checked_hooks
from keras_diet.layers.attention.call_arguments import keys_of_call, terms_of_call
from keras_diet.layers.attention.cases import case_of
from keras_diet.layers.attention.compute_attention import attend_as_layer, attend_as_stock_layer
from keras_diet.layers.attention.key_memory import KeysAndValues
from keras_diet.layers.attention.lowering import lower_shared_terms
from keras_diet.layers.attention.plan import IMPLEMENTATIONS, AttentionPlan
from keras_diet.layers.attention.plan_checks import check_is_plan, checked_plan
from keras_diet.layers.attention.score_shapes import check_symbolic_bias, scores_shape
from keras_diet.layers.attention.score_terms import FeaturePair, ScoreTerms
from keras_diet.types import Config, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class BiasedMultiHeadAttention(OpenMultiHeadAttention):
    """Multi-head attention with an additive bias of the scores, before softmax.

    For each head, with queries `i` and keys `j`:

        A_ij = scale (x_i W_Q) . (y_j W_K) + attention_bias_ij
        output_i = softmax_j(A_ij) (z_j W_V), heads concatenated, times W_O

    The bias may hold positions, segments, distances in a graph or ALiBi. Without `attention_bias`
    the layer equals `keras.layers.MultiHeadAttention`: constructor, weights and their names, masks,
    errors and results. A configuration or checkpoint of one loads into the other.

    A bias of low rank is cheaper as features: `attention_features = (F, G)` adds `F_i . G_j`
    without a `(T, S)` tensor in memory. With `block_size`, scores exist for that many queries at a
    time, and are computed a second time for the gradient. The outputs are the same, and memory
    grows linearly with the length.

    Large scores and masks do not overflow: softmax is always in float32, and so are the scores
    under float16. The layer uses a fused kernel of the backend where it can. docs/performance.md
    has the tables of decisions.

    A subclass changes queries, keys, scores or outputs with `attention_hook`.

    Args:
        num_heads: int. Number of attention heads `H`.
        key_dim: int. Size of each head for query and key.
        value_dim: int or `None`. Size of each head for value. Defaults to `None`: `key_dim`.
        dropout: float. Dropout rate of the attention probabilities. Defaults to `0.0`.
        use_bias: bool. Whether the projections have biases. Defaults to `True`.
        output_shape: int, tuple or `None`. Shape of the output beside batch and sequence.
            Defaults to `None`, which means the size of the query.
        attention_axes: int, tuple or `None`. Axes to attend over. Defaults to `None`: all but
            batch and features.
        sliding_window: int or `None`. Largest distance of a query to its keys, plus one.
            Defaults to `None`, which means any.
        flash_attention: bool or `None`. Whether to require flash attention. Defaults to `None`,
            which means Keras's global setting.
        kernel_initializer: Initializer of the kernels. Defaults to `"glorot_uniform"`.
        bias_initializer: Initializer of the biases. Defaults to `"zeros"`.
        kernel_regularizer: Regularizer of the kernels. Defaults to `None`.
        bias_regularizer: Regularizer of the biases. Defaults to `None`.
        activity_regularizer: Regularizer of the projections' outputs. Defaults to `None`.
        kernel_constraint: Constraint of the kernels. Defaults to `None`.
        bias_constraint: Constraint of the biases. Defaults to `None`.
        use_gate: bool. Whether a sigmoid gate of the query scales the output of the heads.
            Defaults to `False`.
        seed: int or `None`. Seed of dropout. Defaults to `None`.
        scale: float or `None`. Factor of the products of queries and keys. Defaults to `None`,
            which means `1 / sqrt(key_dim)`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        query: Tensor of shape `(B, T, dim)`.
        value: Tensor of shape `(B, S, dim)`.
        key: Tensor of shape `(B, S, dim)`, or `None` for `value`.
        attention_bias: Floating point tensor broadcastable to `(B, num_heads, T, S)`, added to
            the scaled scores; or `None`. With several `attention_axes`, broadcastable to the
            scores. Also a bias layer that returns such a tensor. The layer calls it with the
            query and, if that is another tensor, the key. With `block_size` or `start_index`
            it calls `rows(query, key, start_index)`. In a functional model pass a tensor: the
            weights of a layer in an argument would not be part of the model.
        attention_features: Pair of floating point tensors, of queries `(B or 1, T, num_heads or 1,
            rank)` and of keys `(B or 1, S, num_heads or 1, rank)`, whose inner products are added
            to the scaled scores; or `None`. Needs one sequence axis.
        attention_mask: Boolean tensor of shape `(B, T, S)`; `True` lets the query attend.
        query_mask: Keras mask of the query, `(B, T)`. Set by Keras.
        value_mask: Keras mask of the value, `(B, S)`. Set by Keras.
        key_mask: Keras mask of the key, `(B, S)`. Set by Keras.
        return_attention_scores: bool. Whether to return the probabilities too.
        training: bool. Whether dropout is active.
        use_causal_mask: bool. Whether a query attends only to its position and earlier ones.
        block_size: int or `None`. Number of queries that are computed at a time. Needs one sequence
            axis. Defaults to `None`: all.
        start_index: int or scalar tensor. Position of the first query, for decoding with a cache
            of keys and values. The first key is at position 0. Defaults to `0`.
        score_terms: `ScoreTerms` or `None`. All terms in one object, as a stack of blocks makes
            them. Replaces the bias, features, masks and `start_index` above.
        attention_plan: `AttentionPlan` or `None`. The plan that the stack made for these terms.
        attention_hook: `AttentionHook` or `None`. Runs after the hook of the layer.
        projected_keys: Keys and values that `project_keys` returned, in place of `value` and `key`,
            which must be `None`. Several rows of the query may share a row of keys, as the beams of
            a search do: the first rows share the first one. Defaults to `None`.

    Returns:
        Output of shape `(B, T, dim)`, or a tuple of it and the attention probabilities of shape
        `(B, num_heads, T, S)` if `return_attention_scores`.

    Raises:
        ValueError: If `scale` is not positive. If `attention_bias` is not floating point or does
            not broadcast to the scores. If `attention_features` have other shapes. If `block_size`
            is given with `return_attention_scores`, several sequence axes or a bias layer without
            `rows`. If `flash_attention=True` asks for a TPU kernel that cannot take the terms. If a
            kernel of a hook, or an overridden `_compute_attention`, would ignore a term. The layer
            also raises the errors of Keras's layer.

    Example:

    ```python
    # ALiBi: scores decrease linearly with the distance, with a slope per head.
    position = np.arange(10)
    slope = 2.0 ** -np.arange(1, 5).reshape(1, 4, 1, 1)
    bias = -slope * np.abs(position[:, None] - position[None, :])
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    attention = keras_diet.layers.BiasedMultiHeadAttention(num_heads=4, key_dim=8)
    y = attention(x, x, attention_bias=bias.astype("float32"))
    ```

    References:
     - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), equations 1 and 3
     - [FlashBias, 2025](https://arxiv.org/abs/2505.12044), biases as features
    """

    # `_compute_attention` of Keras's layer calls it.
    attend_as_stock_layer = attend_as_stock_layer
    # Ways of computing attention that a stack of blocks may choose for this layer.
    implementations: tuple[str, ...] = IMPLEMENTATIONS
    # Whether the call takes a `block_size`.
    attends_in_blocks = True
    # Whether the call takes `projected_keys`, which decoding needs.
    takes_projected_keys = True

    def __init__(
        self, num_heads: int, key_dim: int, *args: Any, scale: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(num_heads, key_dim, *args, **kwargs)
        validation.rate("dropout", self.dropout)
        self.scale = scale
        if scale is not None:
            self.score_scale = validation.positive_number("scale", scale)

    def attention_hook(self) -> AttentionHook | None:
        """Return what this layer changes in attention. Subclasses override it."""
        return None

    def plan(
        self,
        terms: ScoreTerms,
        query_shape: Shape,
        key_shape: Shape,
        training: bool | None = None,
        return_attention_scores: bool = False,
        implementation: str = "full",
        block_size: int | None = None,
        attention_hook: AttentionHook | None = None,
        reads_memory: bool = False,
    ) -> AttentionPlan:
        """Return how this layer computes attention with these terms.

        Args:
            terms: The terms.
            query_shape: Shape of the query, `(B, T, dim)`.
            key_shape: Shape of the key, `(B, S, dim)`.
            training: As in the call.
            return_attention_scores: As in the call.
            implementation: The `attention_implementation` of the stack of blocks.
            block_size: As in the call.
            attention_hook: As in the call.
            reads_memory: bool. Whether the call gets `projected_keys`.
        """
        hooks = self._hooks(attention_hook)
        options: Config = {"training": bool(training), "returns_scores": return_attention_scores}
        options |= {"implementation": implementation, "block_size": block_size}
        options |= {"reads_memory": reads_memory}
        terms = self._with_window(terms)
        return checked_plan(case_of(self, terms, query_shape, key_shape, hooks, **options))

    def _with_window(self, terms):
        is_missing = terms.sliding_window is None
        return terms.replace(sliding_window=self.sliding_window) if is_missing else terms

    def project_keys(self, value: Tensor, key: Tensor | None = None) -> KeysAndValues:
        """Return the projected keys and values of the heads, which a decoder keeps.

        Args:
            value: As in the call.
            key: As in the call.

        Returns:
            Keys `(B, S, num_heads, key_dim)` and values `(B, S, num_heads, value_dim)`.
        """
        key = value if key is None else key
        return _backend.dense(self.key_dense, key), _backend.dense(self.value_dense, value)

    def call(
        self,
        query: Tensor,
        value: Tensor | None,
        key: Tensor | None = None,
        attention_bias: Any = None,
        attention_features: FeaturePair | None = None,
        attention_mask: Tensor | None = None,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
        block_size: int | None = None,
        start_index: int | Tensor = 0,
        score_terms: ScoreTerms | None = None,
        attention_plan: AttentionPlan | None = None,
        attention_hook: AttentionHook | None = None,
        projected_keys: KeysAndValues | None = None,
    ) -> Any:
        check_is_plan(attention_plan)
        self.check_flash_attention(query, return_attention_scores)
        key, value = keys_of_call(query, value, key, projected_keys)
        # As in Keras, masks are consumed here. The output gets the mask of the query.
        query_mask = get_keras_mask(query)
        for tensor in (query, value, key):
            set_keras_mask(tensor, None)
        score_terms = terms_of_call(
            self,
            query,
            value,
            score_terms,
            is_planned=attention_plan is not None,
            attention_bias=attention_bias,
            attention_features=attention_features,
            attention_mask=attention_mask,
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
            use_causal_mask=use_causal_mask,
            start_index=start_index,
        )
        terms = self._with_window(score_terms)
        options: Config = {
            "training": training,
            "return_attention_scores": return_attention_scores,
        }
        plan = attention_plan
        if plan is None:
            options_of_plan: Config = {"block_size": block_size, "attention_hook": attention_hook}
            options_of_plan |= {"reads_memory": projected_keys is not None, **options}
            plan = self.plan(terms, query.shape, key.shape, **options_of_plan)
        key_of_bias = None if key is query else key
        terms = lower_shared_terms(terms, plan, query, key_of_bias, self.compute_dtype)
        gate = None if self.gate_dense is None else self.gate_dense(query)
        keys_and_values = projected_keys or self.project_keys(value, key)
        heads = (_backend.dense(self.query_dense, query), *keys_and_values)
        output, scores = attend_as_layer(
            self, heads, terms, plan, self._hooks(attention_hook), **options
        )
        output = output if gate is None else output * gate
        output = _backend.dense(self.output_dense, output, num_axes=2)
        if query_mask is not None:
            set_keras_mask(output, query_mask)
        return (output, scores) if return_attention_scores else output

    def _hooks(self, attention_hook=None):
        return checked_hooks(self.attention_hook(), attention_hook)

    def compute_output_spec(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        attention_bias: Any = None,
        return_attention_scores: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return the symbolic output, and the symbolic scores if they are asked for."""
        check_symbolic_bias(attention_bias, kwargs.get("score_terms"))
        output = super().compute_output_spec(query, value, key)
        if not return_attention_scores:
            return output
        # Keras's own spec has the length of the query twice.
        shape = scores_shape(self, query.shape, value.shape)
        return output, keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> Config:
        """Return the constructor's arguments. Without `scale`, Keras's layer takes them too."""
        config = {**super().get_config(), "flash_attention": self.flash_attention}
        return config if self.scale is None else {**config, "scale": self.scale}
