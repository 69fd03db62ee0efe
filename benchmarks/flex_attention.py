"""DIET-REL on PyTorch's FlexAttention, for comparison: `R_{i-j}` is added inside the kernel."""

import functools

import keras

from keras_diet.layers import (
    AttentionHook,
    BiasedMultiHeadAttention,
    PositionEncoding,
    register_position_encoding,
)

NAME = "diet_rel_flex_attention"


@functools.cache
def compiled_flex_attention():
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


@keras.saving.register_keras_serializable(package="keras_diet_benchmarks")
class FlexAttention(BiasedMultiHeadAttention):
    """Attention with its own `R`. Segments and padding are features, as in every encoder."""

    def __init__(self, num_heads, key_dim, max_length, **kwargs):
        super().__init__(num_heads, key_dim, **kwargs)
        self.max_length = max_length

    def build(self, query_shape, value_shape, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        shape = (self.num_heads, 2 * self.max_length - 1)
        self.relative_embedding = self.add_weight(name="relative_embedding", shape=shape)

    def attention_hook(self):
        return AttentionHook(kernel=self._attend_by_flex_attention)

    def _attend_by_flex_attention(self, query, key, value, scale):
        relative = keras.ops.cast(self.relative_embedding, query.dtype)

        def add_relative(score, batch, head, i, j):
            return score + relative[head, i - j + self.max_length - 1]

        query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
        output = compiled_flex_attention()(query, key, value, add_relative, scale=scale)
        return output.transpose(1, 2)


def register():
    """Give encoders the name `NAME` for this attention."""
    register_position_encoding(
        NAME,
        PositionEncoding(
            attention=lambda sizes, **kwargs: FlexAttention(
                sizes.num_heads, sizes.head_dim, sizes.max_length, **kwargs
            ),
            sharing_modes=("none",),
        ),
    )
