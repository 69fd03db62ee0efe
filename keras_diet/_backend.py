"""The calls for which a backend has a faster way than `keras.ops`, gathered in one place.

Each function returns what its docstring says on every backend; only the time differs.
"""

import math

import keras
from keras import ops

# Finite, so that a row without any key yields no NaN, and far below every score.
MASKED = -1e9


def dense(layer, inputs, num_axes=1):
    """Return `layer(inputs)`, for a `Dense` or `EinsumDense` over the last `num_axes` axes.

    PyTorch multiplies and adds the bias in one call. Keras makes two, and for an `EinsumDense` a
    batched product of a batch of one. Layers that do more than that when they are called (LoRA,
    quantized weights, hooks, another dtype) are called.
    """
    if not _on_torch() or not _is_plain(layer, inputs):
        return layer(inputs)
    from torch.nn import functional

    kernel = ops.convert_to_tensor(layer.kernel)
    if kernel.shape[:num_axes] != inputs.shape[-num_axes:]:
        return layer(inputs)
    outer, output_shape = inputs.shape[:-num_axes], kernel.shape[num_axes:]
    matrix = kernel.reshape(math.prod(kernel.shape[:num_axes]), -1)
    bias = None if layer.bias is None else ops.convert_to_tensor(layer.bias).reshape(-1)
    outputs = functional.linear(inputs.reshape(*outer, -1), matrix.T, bias)
    outputs = outputs.reshape(*outer, *output_shape)
    return outputs if layer.activation is None else layer.activation(outputs)


def _is_plain(layer, inputs):
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    return (
        type(layer) in (keras.layers.Dense, keras.layers.EinsumDense)
        and not layer.lora_enabled
        and layer.quantization_mode is None
        and layer.activity_regularizer is None
        and layer.compute_dtype == dtype == keras.backend.standardize_dtype(layer.kernel.dtype)
        # What calibrates or watches a layer replaces its call or hooks into it.
        and "call" not in vars(layer)
        and not layer._forward_hooks
        and not layer._forward_pre_hooks
        and not layer._backward_hooks
    )


def add(scores, bias):
    """Return `scores + bias`, where nobody else needs `scores` any more.

    PyTorch writes the sum into the memory of `scores`.
    """
    if _on_torch() and scores.dtype == bias.dtype and _fits_into(bias, scores):
        return scores.add_(bias)
    return ops.add(scores, bias)


def _fits_into(tensor, other):
    import torch

    return torch.broadcast_shapes(tensor.shape, other.shape) == other.shape


def has_fused_attention(dtype, head_dim):
    """Whether the backend attends in one kernel, without scores in memory, and takes a bias.

    JAX's for TPUs takes no bias and is not meant here: `"auto"` does not choose it until somebody
    has timed it.

    Args:
        dtype: Dtype of the computation. In float16 kernels overflow, or are missing.
        head_dim: int. Size of the heads of queries and keys, features included.
    """
    dtype = keras.backend.standardize_dtype(dtype)
    if _on_torch():
        return dtype != "float16"
    # cuDNN's kernel; its largest head size is that of all GPUs that have it.
    return _jax_platform() == "gpu" and dtype == "bfloat16" and head_dim <= 128


def has_fused_gradient_of_bias():
    """Whether fused attention takes a bias that needs a gradient: not PyTorch's on a CPU."""
    if not _on_torch():
        return True
    import torch

    return torch.cuda.is_available() or not torch.is_grad_enabled()


def is_on_jax_tpu():
    """Whether JAX computes on TPUs, where `ops.dot_product_attention` is wrong.

    Keras 3.15 calls a kernel there that knows no bias, takes every mask for that of the first
    example, and attends causally without one.
    """
    return _jax_platform() == "tpu"


def adds_inside_softmax():
    """Whether sums of scores take no memory: they are made where the softmax reads them.

    By the compiler for TPUs. XLA on a CPU does so, too, but multiplies larger heads faster.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return bool(tf.config.list_logical_devices("TPU"))
    return is_on_jax_tpu()


def _jax_platform():
    if keras.backend.backend() != "jax":
        return None
    import jax

    return jax.default_backend()


def fused_attention(query, key, value, bias, mask, scale, is_causal, flash_attention):
    """Return `ops.dot_product_attention`, with values of any size and a `bias` or a `mask`.

    PyTorch's kernel takes heads where they lie; Keras copies them first. All fused kernels want
    values of the size of the keys, so they are padded with zeros; JAX's for TPUs pads by
    itself, and takes only a bias or mask that is the same for all queries.
    """
    if is_on_jax_tpu():
        from keras_diet.layers.attention.splash_attention import splash_attention

        return splash_attention(query, key, value, bias, mask, scale, is_causal)
    size, padding = value.shape[-1], query.shape[-1] - value.shape[-1]
    if padding > 0 and keras.backend.backend() != "tensorflow":
        value = ops.pad(value, ((0, 0), (0, 0), (0, 0), (0, padding)))
    if _on_torch() and not flash_attention:
        output = _torch_attention(query, key, value, bias, mask, scale, is_causal)
    else:
        output = ops.dot_product_attention(
            query,
            key,
            value,
            bias=bias,
            mask=mask,
            scale=scale,
            is_causal=is_causal,
            flash_attention=flash_attention,
        )
    return output[..., :size]


def _torch_attention(query, key, value, bias, mask, scale, is_causal):
    import torch
    from torch.nn import functional

    if mask is not None:
        # Of a query without any key PyTorch would make NaN.
        bias = torch.where(mask, 0.0, MASKED).to(query.dtype)
    output = functional.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=bias,
        scale=scale,
        is_causal=is_causal,
    )
    return output.transpose(1, 2)


def sliding_windows(inputs, size):
    """Return all windows of `size` along the last axis, as a new axis before it, or `None`.

    PyTorch has them without a copy; elsewhere they would be gathered.
    """
    return inputs.contiguous().unfold(-1, size, 1) if _on_torch() else None


def arange(length):
    """Return the integers below `length`; `jax2onnx` knows no `ops.arange` of one argument."""
    return ops.arange(0, length)


def map_in_turn(function, blocks):
    """Return `ops.map(function, blocks)`, of which never two calls are in memory at a time."""
    if keras.backend.backend() != "tensorflow":
        return ops.map(function, blocks)
    import tensorflow as tf

    # Keras's own map calls the function once more, to learn what it returns, and ten at a time.
    return tf.map_fn(function, blocks, fn_output_signature=blocks[0].dtype, parallel_iterations=1)


def dropout(inputs, rate, seed, start):
    """Return `keras.random.dropout` of a block, the same again when it is recomputed.

    Args:
        inputs: Tensor.
        rate: float.
        seed: Tensor of two integers, as `keras.random.SeedGenerator.next` returns.
        start: int or scalar tensor, which no other block has: the position of its first row.
    """
    # Generators count in the second number, so blocks differ in the first.
    step = ops.cast(start, seed.dtype) * ops.cast(0x61C88647, seed.dtype)
    seed = ops.stack([seed[0] + step, seed[1]])
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.nn.experimental.stateless_dropout(inputs, rate, seed=tf.cast(seed, "int32"))
    if backend == "jax":
        import jax

        kept = jax.random.bernoulli(seed, 1.0 - rate, inputs.shape)
    else:
        import torch

        generator = torch.Generator(inputs.device).manual_seed(hash(tuple(seed.tolist())))
        kept = torch.empty_like(inputs).bernoulli_(1.0 - rate, generator=generator)
    return ops.multiply(inputs, ops.cast(kept, inputs.dtype) / (1.0 - rate))


def _on_torch():
    return keras.backend.backend() == "torch"
