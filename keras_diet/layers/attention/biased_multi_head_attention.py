"""Multi-head attention that takes an additive score bias."""

import functools
import math
from typing import Any

import keras
from keras import ops

from keras_diet import _backend, validation
from keras_diet._compat import (
    OpenMultiHeadAttention,
    get_keras_mask,
    keras_masks_removed,
    set_keras_mask,
)
from keras_diet.layers import initializers
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.dot_product import attend, block_dropout
from keras_diet.layers.attention.key_memory import KeysAndValues
from keras_diet.layers.attention.plan import IMPLEMENTATIONS, AttentionPlan, make_plan
from keras_diet.layers.attention.prepared_terms import (
    PreparedTerms,
    fold_masks,
    lower_bias,
    prepare,
)
from keras_diet.layers.attention.score_terms import (
    FeaturePair,
    ScoreTerms,
    check_bias,
    check_masks,
    check_only_terms,
    check_symbolic_bias,
    terms_of_arguments,
)
from keras_diet.layers.configuration import with_arguments
from keras_diet.layers.position.position_bias import reads_content
from keras_diet.types import Config, Integer, Shape, Tensor


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

    Large scores and masks do not overflow, because softmax is always in float32. Under float16
    the scores are in float32, too. The layer uses a fused kernel of the backend where it can.

    A subclass changes queries, keys, scores or outputs with `attention_hook`.

    With several `attention_axes` Keras's layer computes attention, without any of these additions.

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
            the scaled scores; or `None`. Also a bias layer that returns such a tensor. The layer
            calls it with the query and, if that is another tensor, the key. With `block_size` or
            `start_index` it calls `rows(query, key, start_index)`. In a functional model pass a
            tensor: the weights of a layer in an argument would not be part of the model.
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
        score_terms: `ScoreTerms` or `None`. All terms in one object. Replaces the bias, features,
            masks and `start_index` above.
        attention_hook: `AttentionHook` or `None`. Runs after the hook of the layer.
        projected_keys: Keys and values that `project_keys` returned, in place of `value` and `key`,
            which must be `None`. A third tensor is the key of a bias that reads the content.
            Several rows of the query may share a row of keys, as the beams of a search do: the
            first rows share the first one. Defaults to `None`.

    Returns:
        Output of shape `(B, T, dim)`, or a tuple of it and the attention probabilities of shape
        `(B, num_heads, T, S)` if `return_attention_scores`.

    Raises:
        ValueError: If `scale` is not positive. If a mask is not 0 or 1, or has another length. If
            `attention_bias` is not floating point or does not broadcast to the scores. If
            `block_size` is given with `return_attention_scores` or a bias layer without `rows`. If
            no kernel can compute attention with `flash_attention=True`. If several
            `attention_axes`, or a subclass that overrides `_compute_attention`, get anything but
            masks. The layer also raises the errors of Keras's layer.

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
        self.scale = None if scale is None else validation.positive_number("scale", scale)
        self.score_scale: float = self.scale or 1.0 / math.sqrt(key_dim)

    def attention_hook(self) -> AttentionHook | None:
        """Return what this layer changes in attention. Subclasses override it."""
        return None

    def plan(
        self,
        terms: ScoreTerms,
        query_shape: Shape,
        training: bool | None = None,
        return_attention_scores: bool = False,
        attention_hook: AttentionHook | None = None,
        **options: Any,
    ) -> AttentionPlan:
        """Return how this layer computes attention with these terms.

        Args:
            terms: The terms.
            query_shape: Shape of the query, `(B, T, dim)`.
            training: As in the call.
            return_attention_scores: As in the call.
            attention_hook: As in the call.
            **options: `block_size`, as in the call; `implementation`, the
                `attention_implementation` of a stack of blocks; and `reads_memory`, whether the
                call gets `projected_keys`.
        """
        hooks, terms = self._hooks(attention_hook), self._with_window(terms)
        options |= {"training": bool(training), "returns_scores": return_attention_scores}
        length = query_shape[1]
        # A program for any length knows none: then it is a symbol, and not a number.
        length = length if isinstance(length, int) else None
        return make_plan(self, terms, length, hooks, **options)

    def _with_window(self, terms):
        is_missing = terms.sliding_window is None and self.sliding_window is not None
        return terms.replace(sliding_window=self.sliding_window) if is_missing else terms

    def _hooks(self, attention_hook):
        hooks = (self.attention_hook(), attention_hook)
        return tuple(hook for hook in hooks if hook is not None)

    def project_keys(self, value: Tensor, key: Tensor | None = None) -> KeysAndValues:
        """Return the projected keys and values of the heads, which a decoder keeps.

        Args:
            value: As in the call.
            key: As in the call.

        Returns:
            Keys `(B, S, num_heads, key_dim)` and values `(B, S, num_heads, value_dim)`.
        """
        value = ops.convert_to_tensor(value, dtype=self.compute_dtype)
        key = value if key is None else ops.convert_to_tensor(key, dtype=self.compute_dtype)
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
        start_index: Integer = 0,
        score_terms: ScoreTerms | None = None,
        attention_hook: AttentionHook | None = None,
        projected_keys: KeysAndValues | None = None,
    ) -> Any:
        query_mask = get_keras_mask(query)
        terms: Config = {
            "attention_bias": attention_bias,
            "attention_features": attention_features,
            "attention_mask": attention_mask,
            "query_mask": query_mask,
            "value_mask": value_mask,
            "key_mask": key_mask,
            "use_causal_mask": use_causal_mask,
            "start_index": start_index,
        }
        options: Config = {"training": training, "return_attention_scores": return_attention_scores}
        if self._is_computed_by_keras(query):
            others = {"block_size": block_size, "projected_keys": projected_keys}
            others["attention_hook"] = self._hooks(attention_hook) or None
            masks = self._masks_for_keras(terms, score_terms, others)
            return super().call(query, value, key, **masks, **options)
        key, value, *of_bias = self._keys_and_values(value, key, projected_keys)
        if score_terms is None:
            masks = {name: terms[name] for name in ("attention_mask", "value_mask", "key_mask")}
            check_masks(self._scores_shape(query, value), **masks)
        elif not isinstance(score_terms, PreparedTerms):
            check_only_terms("score_terms", **terms)
            masks = {"padding_mask": score_terms.padding_mask}
            check_masks(self._scores_shape(query, value), score_terms.attention_mask, **masks)
        key, value, score_terms = self.keys_and_terms(key, value, score_terms, **terms)
        # The masks are in the terms, so the projections must not see them.
        with keras_masks_removed(query, value, key):
            # What a memory keeps for the bias, if it keeps anything.
            other_key = of_bias[0] if of_bias else None if key is query else key
            if not isinstance(score_terms, PreparedTerms):
                validation.start_index(score_terms.start_index)
                check_bias(score_terms.bias, self._scores_shape(query, value))
                options |= {"block_size": block_size, "attention_hook": attention_hook}
                options["reads_memory"] = projected_keys is not None
                score_terms = self._with_window(score_terms)
                plan = self.plan(score_terms, query.shape, **options)
                score_terms = prepare(score_terms, plan, query, other_key)
            elif reads_content(score_terms.bias):
                # A stack has no states of its layers.
                score_terms = lower_bias(score_terms, query, other_key)
                score_terms = fold_masks(score_terms, query, other_key)
            gate = self.gate(query)
            keys_and_values = projected_keys or self.project_keys(value, key)
            heads = _backend.dense(self.query_dense, query)
            keys, values = keys_and_values[:2]
            prepared = score_terms.replace(
                scale=self.score_scale,
                hooks=self._hooks(attention_hook),
                dropout=self._dropout_of(training, score_terms.plan),
            )
            output, scores = attend(heads, keys, values, prepared)
            output = output if gate is None else output * gate
            output = _backend.dense(self.output_dense, output, num_axes=2)
        if query_mask is not None:
            set_keras_mask(output, query_mask)
        return (output, scores) if return_attention_scores else output

    def arguments_of_query_dense(self) -> Config:
        """Return arguments with which a projection of positions is made as that of the queries."""
        dense = self.query_dense
        names = ("kernel_regularizer", "kernel_constraint", "bias_regularizer", "bias_constraint")
        return {
            "kernel_initializer": initializers.fresh(dense.kernel_initializer),
            "bias_initializer": initializers.fresh(dense.bias_initializer),
            "dtype": self.dtype_policy,
            **{name: getattr(dense, name) for name in names},
        }

    def _dropout_of(self, training, plan):
        if not training or self.dropout == 0.0:
            return None
        if plan.block_size is None:
            return functools.partial(self.dropout_layer, training=True)
        return block_dropout(self.dropout, self.dropout_layer.seed_generator)

    def _keys_and_values(self, value, key, projected_keys):
        is_projected = projected_keys is not None
        fits = not is_projected or (key is None and self.takes_projected_keys)
        if not fits or (value is None) != is_projected:
            raise ValueError(
                "`projected_keys` replace the argument `value` and its `key`. Linformer takes "
                f"none. Received: value={type(value).__name__}, "
                f"key={type(key).__name__}, projected_keys={type(projected_keys).__name__} in "
                f"{type(self).__name__}. Pass either a `value` or `projected_keys`."
            )
        return projected_keys or ((value if key is None else key), value)

    def _scores_shape(self, query, value):
        return (query.shape[0], self.num_heads, query.shape[1], value.shape[1])

    def keys_and_terms(
        self, key: Tensor, value: Tensor, score_terms: ScoreTerms | None, **arguments: Any
    ) -> tuple[Tensor, Tensor, ScoreTerms]:
        """Return the keys and values to project, and the terms of their scores.

        Args:
            key: Tensor `(B, S, dim)`.
            value: Tensor `(B, S, dim)`.
            score_terms: All terms in one object, or `None`.
            **arguments: The terms in separate arguments, as in the call.
        """
        return key, value, score_terms or terms_of_arguments(**arguments)

    def _is_computed_by_keras(self, query):
        """Whether to attend over several axes, or by the method that Keras documents for this."""
        has_one_axis = len(query.shape) == 3 and tuple(self.attention_axes) == (1,)
        return not has_one_axis or self.overrides_compute_attention

    def _masks_for_keras(self, arguments, terms, others):
        """Return the masks of a call, which are the only terms that Keras's layer takes."""
        if terms is None:
            masks = {name: mask for name, mask in arguments.items() if "mask" in name}
            terms = terms_of_arguments(**{**arguments, **dict.fromkeys(masks)})
        else:
            masks = {"attention_mask": terms.attention_mask, "value_mask": terms.padding_mask}
            masks["use_causal_mask"] = terms.is_causal
        others |= {
            "attention_bias": terms.bias,
            "attention_features": terms.features or None,
            "pair_scores": terms.pair_scores,
            "sliding_window": terms.sliding_window,
            "document_ids": terms.document_ids,
            "start_index": None if terms.starts_at_zero else terms.start_index,
            "scale": self.scale,
            "projection_dim": getattr(self, "projection_dim", None),
        }
        if tuple(self.attention_axes) != (1,):
            # Keras makes these masks for axis 1 only.
            others["sliding_window"] = terms.sliding_window or self.sliding_window
            others["use_causal_mask"] = masks["use_causal_mask"] or None
        names = ", ".join(name for name, value in others.items() if value is not None)
        if names:
            raise ValueError(
                "Keras's layer computes attention over several axes, and attention by an "
                "overridden `_compute_attention`. It takes masks only, and causal ones only with "
                f"`attention_axes=(1,)`. Received: {names} in {type(self).__name__}. Leave them "
                "out, reshape the inputs to (batch_size, length, features), or override "
                "`attention_hook`."
            )
        return masks

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
        shape = self._scores_shape(query, value)
        return output, keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> Config:
        """Return the constructor's arguments. Without `scale`, Keras's layer takes them too."""
        config = with_arguments(super().get_config(), self)
        config["flash_attention"] = self.flash_attention
        if self.scale is None:
            # Without it the configuration equals Keras's.
            del config["scale"]
        return config
