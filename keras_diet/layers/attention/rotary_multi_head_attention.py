"""Attention with rotary positions, which turn queries and keys by an angle for each position."""

from typing import Any

import keras
from keras import ops

from keras_diet import validation
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.biased_multi_head_attention import BiasedMultiHeadAttention
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.layers.position.rope_scaling import rope_scaling_of, rotary_angles
from keras_diet.types import Config, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class RotaryMultiHeadAttention(BiasedMultiHeadAttention):
    """Multi-head attention with rotary positions of queries and keys (RoPE).

    For each head, with query `i`, key `j` and the rotation `R_p` of position `p`:

        A_ij = scale (R_i W_Q x_i) . (R_j W_K y_j) + attention_bias_ij
             = scale (W_Q x_i) . R_{j-i} (W_K y_j) + attention_bias_ij

    so the scores depend on positions through distances only. `R_p` turns pair `k` of the numbers
    of a query or key by an angle `t`, for `k = 0, ..., key_dim / 2 - 1`:

        (a, b) -> (a cos(t) - b sin(t), a sin(t) + b cos(t)),   t = p / max_wavelength^(2k/key_dim)

    Pair `k` has the numbers `k` and `k + key_dim / 2`. Su et al. pair the neighbors `2k` and
    `2k + 1`. A fixed order of the columns of `W_Q` and `W_K` turns one layer into the other.

    The layer has no parameters for positions, and takes sequences of any length. Values and the
    scale do not change. So all programs compute this attention, fused kernels among them. Angles
    and rotations are in float32 under every policy.

    Args:
        num_heads: int. Number of attention heads `H`.
        key_dim: int. Size of each head for query and key. Must be even.
        max_wavelength: float. Base of the wavelengths, `2 pi max_wavelength^(2k/key_dim)` tokens.
            Defaults to `10_000`.
        rope_scaling: dict or `None`. Slower angles, for texts that are longer than those of the
            training. The names are as in `rope_parameters` of `transformers`. `"rope_type"` is

            - `"linear"`: all angles are divided by `factor`, so the distances of a text that is
              `factor` times as long become those of the training (Chen et al., 2023);
            - `"dynamic"`: beyond `original_max_position_embeddings` tokens, `L`, the base of a
              text of `T` tokens is `max_wavelength (factor T / L - factor + 1)^(d / (d - 2))` with
              `d = key_dim`. So the fastest pair keeps its angles (NTK). Not for decoding with a
              cache, because each new token would turn the cached keys;
            - `"yarn"`: pairs that turn less than `beta_slow` times, 1 by default, in `L` tokens are
              divided by `factor`, those that turn more than `beta_fast` times, 32 by default, stay,
              and those between are mixed. `attention_factor` multiplies queries and keys, and is
              `0.1 log(factor) + 1` by default (Peng et al., 2024).

            Defaults to `None`: no scaling.
        **kwargs: Keyword arguments of `BiasedMultiHeadAttention`, without `attention_axes`.

    Call arguments:
        query: Tensor of shape `(B, T, dim)`.
        value: Tensor of shape `(B, S, dim)`.
        key: Tensor of shape `(B, S, dim)`, or `None` for `value`.
        start_index: int or scalar tensor. Position of the first query, for decoding with a cache
            of keys and values. The first key is at position 0. Defaults to `0`.
        attention_bias: As in `BiasedMultiHeadAttention`, like all other arguments.

    Returns:
        As `BiasedMultiHeadAttention`.

    Raises:
        ValueError: If `key_dim` is odd; if `max_wavelength` is not positive; if `attention_axes` is
            given; or if the inputs do not have one sequence axis. If `rope_scaling` has another
            type, lacks a value, or has one that its type does not read. Otherwise as
            `BiasedMultiHeadAttention`.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    attention = keras_diet.layers.RotaryMultiHeadAttention(num_heads=4, key_dim=8)
    y = attention(x, x, use_causal_mask=True)
    ```

    References:
     - [Su et al., 2021](https://arxiv.org/abs/2104.09864), section 3
     - [Chen et al., 2023](https://arxiv.org/abs/2306.15595), linear scaling
     - [Peng et al., 2024](https://arxiv.org/abs/2309.00071), YaRN and "dynamic" scaling
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        max_wavelength: float = 10_000.0,
        rope_scaling: Config | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, key_dim, **kwargs)
        self.max_wavelength = validation.positive_number("max_wavelength", max_wavelength)
        self.rope_scaling = rope_scaling_of("rope_scaling", rope_scaling)
        if self.key_dim % 2:
            raise ValueError(
                "`key_dim` must be even, because rotary positions turn pairs of numbers. Received: "
                f"key_dim={self.key_dim}. In a stack of blocks it is `hidden_dim / num_heads`: "
                "choose another number of heads."
            )

    def attention_hook(self) -> AttentionHook:
        """Rotate queries and keys."""
        return AttentionHook(rotation=self.rotate)

    def rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Return projected queries or keys, turned by the angles of their positions.

        Args:
            heads: Projected queries or keys `(B, T, num_heads, key_dim)`.
            positions: Integer tensor `(T,)` or `(B, T)`.

        Returns:
            Tensor of the shape and dtype of `heads`.
        """
        scaling = self.rope_scaling
        angles = rotary_angles(positions, self.key_dim, self.max_wavelength, scaling)
        angles = ops.expand_dims(angles, -2)
        dtype = keras.backend.result_type(heads.dtype, "float32")
        cosines, sines = ops.cast(ops.cos(angles), dtype), ops.cast(ops.sin(angles), dtype)
        first, second = ops.split(ops.cast(heads, dtype), 2, axis=-1)
        if scaling is not None and "attention_factor" in scaling:
            cosines, sines = (each * scaling["attention_factor"] for each in (cosines, sines))
        turned = [first * cosines - second * sines, first * sines + second * cosines]
        return ops.cast(ops.concatenate(turned, axis=-1), heads.dtype)


ROTARY = PositionEncoding(attention=RotaryMultiHeadAttention)
