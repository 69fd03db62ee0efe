"""Multi-head attention that takes an additive score bias."""

import functools

import keras
from keras import ops

from keras_diet import _backend, validation
from keras_diet._keras import get_keras_mask, set_keras_mask
from keras_diet.layers.attention.query_blocks import attend_in_blocks, is_block_bias
from keras_diet.layers.attention.score_features import (
    append_features,
    features_as_bias,
    size_with_features,
)

# A sum of more products takes longer than a matrix product.
_FEW_FEATURES = 8
# From so many queries and keys on JAX's kernel for TPUs is used.
_LONG_FOR_KERNEL = 2048


@keras.saving.register_keras_serializable(package="keras_diet")
class BiasedMultiHeadAttention(keras.layers.MultiHeadAttention):
    """Multi-head attention with an additive bias of the scores, before softmax.

    For each head, with queries `i` and keys `j`:

        A_ij = scale (x_i W_Q) . (y_j W_K) + attention_bias_ij
        output_i = softmax_j(A_ij) (z_j W_V), heads concatenated, times W_O

    The layer knows nothing of where the bias comes from: positions, segments, a graph distance
    or ALiBi. Without `attention_bias` it *is* `keras.layers.MultiHeadAttention`: constructor,
    weights and their names, masks, errors and results are Keras's own, and a configuration or
    checkpoint of one loads into the other.

    A bias of low rank is cheaper as features, which are appended to the scaled queries and to the
    keys: `attention_features = (F, G)` adds `F_i . G_j` without a `(T, S)` tensor in memory. On
    TPUs, at inference without a kernel, up to 8 features are a sum of outer products instead, which
    the compiler adds inside the softmax. With `block_size`, scores exist for that many queries at a
    time and are computed again for the gradient: the same outputs, and memory that grows linearly
    with the length (but for the mask of `sliding_window`, which Keras makes as a whole).

    Softmax is computed in float32 under float16 and bfloat16 as well, and scores under float16, so
    that neither large scores nor masks overflow. A fused kernel of the backend is used wherever it
    has one, no scores are asked for and no probability is dropped (with a mask alone, as in Keras,
    only if `dropout` is 0), but not in float16, in which it overflows or fails on some backends.
    JAX's kernel for TPUs takes features and what is the same for all queries of a sequence, and no
    other bias or mask; it is used from 2048 queries and keys on, or with `flash_attention`.

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
            the scaled scores; or `None`. With several `attention_axes`, to the scores' shape. Also
            a layer that returns it, called with the query and, where it is another tensor, the key;
            with `block_size` with `(query, key, start_index=...)`, the projected rows of a block
            and the position of the first: it may read their lengths only, as position biases do,
            and have no state. In a functional model only a tensor, or the layer would be no part
            of it.
        attention_features: Pair of floating point tensors, of queries `(B or 1, T, num_heads or 1,
            rank)` and of keys `(B or 1, S, num_heads or 1, rank)`, whose inner products are added
            to the scaled scores; or `None`. Needs one sequence axis.
        attention_mask: Boolean tensor of shape `(B, T, S)`; `True` lets the query attend.
        query_mask: Keras mask of the query, `(B, T)`. Set by Keras.
        value_mask: Keras mask of the value, `(B, S)`. Set by Keras.
        key_mask: Keras mask of the key, `(B, S)`. Set by Keras.
        return_attention_scores: bool. Whether to return the probabilities as well.
        training: bool. Whether dropout is active.
        use_causal_mask: bool. Whether a query attends to no later position.
        block_size: int or `None`. Number of queries that are attended for at a time. Needs one
            sequence axis. Defaults to `None`: all.

    Returns:
        Output of shape `(B, T, dim)`, or a tuple of it and the attention probabilities of shape
        `(B, num_heads, T, S)` if `return_attention_scores`.

    Raises:
        ValueError: If `scale` is not positive, if `attention_bias` is boolean or integer (a mask,
            most likely) or does not broadcast to the scores, if `attention_features` do not have
            their shapes, or if `block_size` is given together with `return_attention_scores`,
            several sequence axes or a bias layer that takes no `start_index`, or if
            `flash_attention=True` asks a TPU's kernel for what it cannot do; otherwise as Keras's
            layer.

    Example:

    ```python
    # ALiBi: scores fall linearly with the distance, with a slope per head.
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

    # Whether an encoder may hand over segments and padding as features, which cost less.
    accepts_features = True
    # Whether it can attend for a block of queries at a time.
    accepts_blocks = True

    def __init__(self, num_heads, key_dim, *args, scale=None, **kwargs):
        super().__init__(num_heads, key_dim, *args, **kwargs)
        self.scale = scale
        if scale is not None:
            self._inverse_sqrt_key_dim = validation.positive_number("scale", scale)

    def call(
        self,
        query,
        value,
        key=None,
        attention_bias=None,
        attention_features=None,
        attention_mask=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        block_size=None,
    ):
        self._check_block_size(query, attention_bias, return_attention_scores, block_size)
        key = value if key is None else key
        if isinstance(attention_bias, keras.layers.Layer):
            lengths = (query,) if key is query else (query, key)
            if block_size is None:
                attention_bias = attention_bias(*lengths)
            else:
                _prepare_for_blocks(attention_bias, lengths, training)
        self._check_terms(query, value, attention_bias, attention_features)
        # As in Keras: masks are consumed here, and only the query's goes on with the output.
        query_mask = get_keras_mask(query)
        for tensor in (query, value, key):
            set_keras_mask(tensor, None)

        masks = (query_mask, value_mask, key_mask, attention_mask, self._sliding_window)
        no_others = attention_bias is None and all(mask is None for mask in masks)
        only_causal = use_causal_mask and no_others
        # Blocks make the rows of a causal mask as they need them.
        separate_causal = only_causal or block_size is not None
        if not only_causal:
            attention_mask = self._compute_attention_mask(
                query,
                value,
                query_mask=query_mask,
                value_mask=value_mask,
                key_mask=key_mask,
                attention_mask=attention_mask,
                use_causal_mask=use_causal_mask and not separate_causal,
            )

        gate = self._gate_dense(query) if self._use_gate else None
        output, scores = self._compute_attention(
            _backend.dense(self.query_dense, query),
            _backend.dense(self.key_dense, key),
            _backend.dense(self.value_dense, value),
            attention_mask,
            training,
            return_attention_scores,
            use_causal_mask=use_causal_mask and separate_causal,
            attention_bias=attention_bias,
            attention_features=attention_features,
            block_size=block_size,
        )
        output = output if gate is None else output * gate
        output = _backend.dense(self.output_dense, output, num_axes=2)
        if query_mask is not None:
            set_keras_mask(output, query_mask)
        return (output, scores) if return_attention_scores else output

    def _check_terms(self, query, value, bias, features):
        shape = self._scores_shape(query.shape[:-1], value.shape[:-1])
        if bias is not None and not isinstance(bias, keras.layers.Layer):
            validation.score_bias("attention_bias", bias, shape)
        if features is not None:
            if len(shape) != 4:
                raise ValueError(
                    "`attention_features` need one sequence axis. Received: "
                    f"attention_axes={self.attention_axes}, query.shape={tuple(query.shape)}"
                )
            validation.score_features("attention_features", features, shape)

    def _check_block_size(self, query, bias, return_attention_scores, block_size):
        if block_size is None:
            return
        validation.positive_int("block_size", block_size)
        if not self.accepts_blocks:
            raise ValueError(
                f"`{type(self).__name__}` attends to all queries at once: leave `block_size` at "
                f"`None`. Received: block_size={block_size}"
            )
        if return_attention_scores or len(query.shape) != 3:
            raise ValueError(
                "`block_size` needs one sequence axis, and there are no scores to return. "
                f"Received: block_size={block_size}, query.shape={tuple(query.shape)}, "
                f"return_attention_scores={return_attention_scores}"
            )
        if isinstance(bias, keras.layers.Layer) and not is_block_bias(bias):
            raise ValueError(
                "With `block_size`, a layer given as `attention_bias` must take the arguments "
                "(query, key, start_index) and return the scores of the queries from `start_index` "
                "on, without state that calls change (dropout, seeds). "
                f"Received: {bias}"
            )

    def _build_attention(self, rank):
        super()._build_attention(rank)
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        self._softmax = keras.layers.Softmax(axis=self._softmax.axis, dtype=dtype)

    def _compute_attention(
        self,
        query,
        key,
        value,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
        use_causal_mask=False,
        attention_bias=None,
        attention_features=None,
        block_size=None,
    ):
        if self._flash_attention and return_attention_scores:
            # Keras's own refusal, in its words.
            return super()._compute_attention(query, key, value, return_attention_scores=True)
        rank = 0 if attention_features is None else attention_features[0].shape[-1]
        plain = attention_bias is None and rank == 0
        # Without a bias Keras takes the plain path whenever dropout > 0, and the paths differ in
        # what a query gets that may attend to no key.
        as_keras = plain and attention_mask is not None
        needs_scores = return_attention_scores or (self._dropout > 0.0 and (training or as_keras))
        fuses = not needs_scores and self._can_fuse(
            query,
            value,
            bias=attention_bias,
            mask=attention_mask,
            rank=rank,
            block_size=block_size,
        )
        if attention_features is not None:
            if not fuses and block_size is None and self._adds_features(rank, training):
                scores = features_as_bias(*attention_features, self._softmax.dtype)
                if attention_bias is not None:
                    scores = ops.add(attention_bias, scores)
                attention_bias = scores
            else:
                query, key = self._with_features(query, key, *attention_features)
        attend = self._attend_fused if fuses else self._attend
        if block_size is not None:
            return self._attend_in_blocks(
                attend,
                query,
                key,
                value,
                attention_bias,
                attention_mask,
                use_causal_mask,
                training,
                block_size,
            )
        dropout = functools.partial(self._dropout_layer, training=training)
        return attend(query, key, value, attention_bias, attention_mask, use_causal_mask, dropout)

    def _attend_in_blocks(
        self, attend, query, key, value, bias, mask, is_causal, training, block_size
    ):
        seed = None
        if training and self._dropout > 0.0:
            seed = self._dropout_layer.seed_generator.next()

        def attend_block(query, key, value, bias, mask, start):
            def dropout(probabilities):
                if seed is None:
                    return probabilities
                return _backend.dropout(probabilities, self._dropout, seed, start)

            output, _ = attend(query, key, value, bias, mask, False, dropout)
            return output

        if bias is not None and not isinstance(bias, keras.layers.Layer):
            bias = _with_four_axes(bias)
        mask = None if mask is None else _with_head_axis(ops.cast(mask, "bool"))
        output = attend_in_blocks(
            attend_block, query, key, value, bias, mask, is_causal, block_size
        )
        return output, None

    def _adds_features(self, rank, training):
        # Gradients of columns are products; those of sums would be sums of all scores.
        return rank <= _FEW_FEATURES and not training and _backend.adds_inside_softmax()

    def _with_features(self, query, key, query_features, key_features):
        """Return queries and keys whose products are the scores with those of the features."""
        # The features are not scaled, but the queries will be.
        query_features = query_features / self._inverse_sqrt_key_dim
        return append_features(query, query_features), append_features(key, key_features)

    def _scores_shape(self, query_shape, key_shape):
        """Return the shape of the scores; both arguments are shapes without features."""
        attended = self._attention_axes
        free = [size for axis, size in enumerate(query_shape) if axis and axis not in attended]
        query_sizes = [query_shape[axis] for axis in attended]
        key_sizes = [key_shape[axis] for axis in attended]
        return (query_shape[0], *free, self.num_heads, *query_sizes, *key_sizes)

    def _attend(self, query, key, value, bias, mask, is_causal, dropout):
        """Return the output of the heads, and the probabilities."""
        if is_causal:
            mask = self._compute_causal_mask(query, value)
        query = self._scaled(query)
        scores = self._products(query, ops.cast(key, query.dtype))
        heads_first = len(query.shape) == 4
        if heads_first:
            bias = None if bias is None else _heads_first(_with_four_axes(bias))
            mask = None if mask is None else _heads_first(_with_head_axis(mask))
        if bias is not None:
            scores = _backend.add(ops.cast(scores, self._softmax.dtype), bias)
        probabilities = ops.cast(self._masked_softmax(scores, mask), value.dtype)
        if not heads_first:
            return self._combine(dropout(probabilities), value), probabilities
        # The same probabilities are dropped as by Keras's layer.
        probabilities = _heads_first(probabilities)
        return self._combine(_heads_first(dropout(probabilities)), value), probabilities

    def _scaled(self, query):
        if _is_float16(query):
            # Products of float16 reach infinity long before their softmax means anything.
            query = ops.cast(query, "float32")
        return ops.multiply(query, ops.cast(self._inverse_sqrt_key_dim, query.dtype))

    def _products(self, query, key):
        """Return the products of queries and keys: with one sequence axis `(H, B, T, S)`.

        The gradient of a bias is a sum over the batch. As a sum over the outermost axis XLA takes
        many times as long on a CPU.
        """
        if len(query.shape) != 4:
            return ops.einsum(self._dot_product_equation, key, query)
        return ops.matmul(ops.transpose(query, (2, 0, 1, 3)), ops.transpose(key, (2, 0, 3, 1)))

    def _combine(self, probabilities, value):
        """Return the sums of values, in the order of the axes of the values."""
        if len(value.shape) != 4:
            return ops.einsum(self._combine_equation, probabilities, value)
        output = ops.matmul(probabilities, ops.transpose(value, (2, 0, 1, 3)))
        return ops.transpose(output, (1, 2, 0, 3))

    def _can_fuse(self, query, value, bias, mask, rank, block_size):
        if _backend.is_on_jax_tpu():
            return self._can_splash(query, value, bias, mask, block_size)
        size = size_with_features(query.shape[-1], rank)
        plain = bias is None and rank == 0
        # In float16 fused attention overflows in TensorFlow and does not compile for JAX's CPU;
        # JAX's takes no values of a larger head size.
        fitting = size >= value.shape[-1] or keras.backend.backend() != "jax"
        return (
            (plain or self._flash_attention or _backend.has_fused_attention(query.dtype, size))
            and len(query.shape) == 4
            and fitting
            and not _is_float16(query)
        )

    def _can_splash(self, query, value, bias, mask, block_size):
        """Whether JAX's kernel for TPUs can attend, and is asked for or worth it."""
        lengths = query.shape[1], value.shape[1]
        is_long = all(isinstance(length, int) and length >= _LONG_FOR_KERNEL for length in lengths)
        if not is_long and not self._flash_attention:
            return False
        fits = (
            block_size is None
            and len(query.shape) == 4
            and not _is_float16(query)
            and all(term is None or _is_one_row(term) for term in (bias, mask))
        )
        if self._flash_attention and not fits:
            raise ValueError(
                "On TPUs flash attention takes one sequence axis, features, and a bias or mask "
                "that is the same for all queries, neither in float16 nor in blocks. Received: "
                f"flash_attention=True, queries {tuple(query.shape)} in {query.dtype}, attention "
                f"bias {_describe(bias)}, mask {_describe(mask)}, block_size={block_size}. Leave "
                "`flash_attention` at `None` to let the layer choose"
            )
        # `False` is what `keras.config.disable_flash_attention` leaves behind.
        return fits and self._flash_attention is not False

    def _attend_fused(self, query, key, value, bias, mask, is_causal, dropout):
        """Return the output of the heads, without dropout, and `None`."""
        if mask is not None:
            mask = _with_head_axis(ops.cast(mask, "bool"))
        if bias is not None:
            bias = ops.cast(_with_four_axes(bias), query.dtype)
            if mask is not None:
                # PyTorch takes a bias or a mask, not both.
                bias, mask = ops.where(mask, bias, _backend.MASKED), None
        output = _backend.fused_attention(
            query,
            key,
            value,
            bias=bias,
            mask=mask,
            scale=self._inverse_sqrt_key_dim,
            is_causal=is_causal,
            flash_attention=self._flash_attention,
        )
        return output, None

    def compute_output_spec(
        self,
        query,
        value,
        key=None,
        attention_bias=None,
        attention_features=None,
        attention_mask=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        block_size=None,
    ):
        """Return the symbolic output, and the symbolic scores if they are asked for."""
        validation.tensor_in_functional_model("attention_bias", attention_bias)
        output = super().compute_output_spec(query, value, key)
        if not return_attention_scores:
            return output
        # Keras's own spec gives the query length twice.
        shape = self._scores_shape(query.shape[:-1], value.shape[:-1])
        return output, keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self):
        """Return the constructor's arguments; without `scale`, Keras's layer takes them too."""
        config = {**super().get_config(), "flash_attention": self._flash_attention}
        return config if self.scale is None else {**config, "scale": self.scale}


def _prepare_for_blocks(bias, inputs, training):
    """Do to a layer what its call does; blocks call it without state."""
    if not bias.built:
        bias(*(tensor[:, :1] for tensor in inputs))
    if training and hasattr(bias, "drop_cached_scores"):
        bias.drop_cached_scores()


def _heads_first(tensor):
    """Swap the axes of the batch and of the heads, there or back."""
    return ops.swapaxes(tensor, 0, 1)


def _with_four_axes(bias):
    return ops.reshape(bias, (1,) * (4 - len(bias.shape)) + tuple(ops.shape(bias)))


def _with_head_axis(mask):
    while len(mask.shape) < 4:
        mask = ops.expand_dims(mask, -3)
    return mask


def _is_one_row(term):
    """Whether a bias or mask is the same for all queries."""
    return len(term.shape) < 2 or term.shape[-2] == 1


def _describe(term):
    shape = getattr(term, "shape", None)
    return term if shape is None else tuple(shape)


def _is_float16(tensor):
    return keras.backend.standardize_dtype(tensor.dtype) == "float16"
