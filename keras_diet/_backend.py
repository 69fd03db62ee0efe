"""Calls for which a backend has another way than `keras.ops` or NumPy, all in this file.

The results of a model are the same on every backend.
"""

import functools
import math

import keras
from keras import ops


def dense(layer, inputs, num_axes=1):
    """Return `layer(inputs)`, for a `Dense` or `EinsumDense` over the last `num_axes` axes.

    On PyTorch, one call multiplies and adds the bias. Keras makes two calls, and for an
    `EinsumDense` a batched product with a batch of one. Layers that do more in their call are
    called: with LoRA, quantized weights, hooks or another dtype.
    """
    if not _on_torch() or not _is_plain(layer, inputs):
        return layer(inputs)
    from torch.nn import functional

    kernel = ops.convert_to_tensor(layer.kernel)
    outer, output_shape = inputs.shape[:-num_axes], kernel.shape[num_axes:]
    # PyTorch cannot infer a size in an empty batch.
    input_dim = math.prod(kernel.shape[:num_axes])
    bias = None if layer.bias is None else ops.convert_to_tensor(layer.bias).reshape(-1)
    matrix = kernel.reshape(input_dim, -1)
    outputs = functional.linear(inputs.reshape(*outer, input_dim), matrix.T, bias)
    outputs = outputs.reshape(*outer, *output_shape)
    return outputs if layer.activation is None else layer.activation(outputs)


def only_runs():
    """Whether PyTorch records no program now, and casts nothing."""
    import torch

    return not (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch.is_autocast_enabled("cpu")
        or torch.is_autocast_enabled("cuda")
    )


def _is_plain(layer, inputs):
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    return (
        type(layer) in (keras.layers.Dense, keras.layers.EinsumDense)
        # With LoRA, each look at the kernel adds the updates to it.
        and not layer.lora_enabled
        and layer.quantization_mode is None
        and layer.activity_regularizer is None
        and layer.compute_dtype == dtype == keras.backend.standardize_dtype(layer.kernel.dtype)
        and not has_hooks(layer)
    )


def has_hooks(layer):
    """Whether a tool that calibrates or watches layers replaced the call, or added hooks."""
    kinds, of_all_layers = _hooks_of_torch()
    own = vars(layer)
    return "call" in own or any(map(own.__getitem__, kinds)) or any(of_all_layers)


@functools.cache
def _hooks_of_torch():
    """Return the kinds of hooks that a layer may have, and the dictionaries of those of all layers.

    PyTorch has no public name for them, and its versions have different kinds.
    """
    import torch
    from torch.nn.modules import module

    kinds = [name for name in vars(torch.nn.Module()) if name.endswith("_hooks")]
    return kinds, [hooks for name, hooks in vars(module).items() if name.endswith("_hooks")]


def add_products(bias, query_features, key_features):
    """Return `bias` plus the inner products of few features, `(B or 1, H or 1, T, S)`.

    A sum of outer products is cheaper than a matrix product here: XLA computes it where it is read,
    and PyTorch adds each product in one pass.

    Args:
        bias: Tensor `(B or 1, H or 1, T or 1, S or 1)`, or `None`.
        query_features: Tensor `(B or 1, T, H or 1, r)`.
        key_features: Tensor `(B or 1, S, H or 1, r)`.
    """
    query, key = (ops.transpose(tensor, (3, 0, 2, 1)) for tensor in (query_features, key_features))
    for i in range(query.shape[0]):
        columns, rows = query[i][..., None], key[i][..., None, :]
        if bias is None:
            bias = columns * rows
        elif _on_torch():
            bias = bias.addcmul(columns, rows)
        else:
            bias = bias + columns * rows
    return bias


def take_rows(table, indices):
    """Return `table[indices]`, for a weight of a layer.

    On TensorFlow, the gradient of `ops.take` lists a row as often as it was taken. Keras's
    optimizers then square each part of the sum. The gradient of a reshaped table is a whole one.
    """
    table = ops.convert_to_tensor(table)
    return ops.take(ops.reshape(table, table.shape), indices, axis=0)


def take_of_few(table, indices):
    """Return `table[indices]`, for a weight of few rows.

    XLA on a GPU adds the gradients of a row one after another, which takes longer than attention.
    A sum over all indices does not wait. PyTorch sorts the indices.
    """
    if _on_torch() or platform() == "cpu":
        return take_rows(table, indices)
    table = ops.convert_to_tensor(table)
    is_row = ops.expand_dims(indices, -1) == arange(table.shape[0])
    return ops.sum(ops.where(ops.expand_dims(is_row, -1), table, 0.0), axis=-2)


def remat(function):
    """Return the function as `keras.remat` does: computed again for its gradient.

    On PyTorch an exception ends the second computation as soon as the gradient has what it needs.
    Keras adds the arguments of the layer to the exception, and a cycle of references then keeps
    all tensors of the layer until Python collects garbage. So the second computation runs to its
    end here.
    """
    recomputed = keras.remat(function)
    if not _on_torch():
        return recomputed
    from torch.utils.checkpoint import set_checkpoint_early_stop

    def run_to_the_end(*args):
        with set_checkpoint_early_stop(False):
            return recomputed(*args)

    return run_to_the_end


def as_tensor(value):
    """Return the value of a variable as an argument of `remat`.

    TensorFlow would count the gradient of a variable twice, as an argument and as a variable.
    """
    if keras.backend.backend() != "tensorflow":
        return value
    import tensorflow as tf

    return tf.identity(value)


def replica_context():
    """Return the context of a replica of `tf.distribute`, or `None` if no others compute."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context if context is not None and context.num_replicas_in_sync > 1 else None


def rows_of_all_devices(*values):
    """Return the rows of all devices that train together, with gradients: replicas or processes.

    On JAX a tensor has the rows of all devices anyway. Without gradients, as in `evaluate`, a
    process of PyTorch keeps its rows, because the others may not evaluate.

    Args:
        *values: Tensors, arrays or `None`, with as many rows as those of the other devices.
    """
    tensors = [value if value is None else ops.convert_to_tensor(value) for value in values]
    given = [tensor for tensor in tensors if tensor is not None]
    if (context := replica_context()) is not None:
        rows_of = [context.all_gather(tensor, axis=0) for tensor in given]
        for tensor, all_rows in zip(given, rows_of, strict=True):
            all_rows.set_shape((None, *tensor.shape[1:]))
        given = rows_of
    if _on_torch():
        import torch
        import torch.distributed as processes

        if torch.is_grad_enabled() and processes.is_available() and processes.is_initialized():
            from torch.distributed.nn.functional import all_gather

            given = [torch.cat(all_gather(tensor)) for tensor in given]
    rows = iter(given)
    return [tensor if tensor is None else next(rows) for tensor in tensors]


def kernel_takes_mask():
    """Whether the fused kernel takes a mask.

    With a mask, PyTorch's kernel returns NaN for a query that may attend to no key.
    """
    return not _on_torch()


def platform():
    """Return where the backend computes by default: `"cpu"`, `"gpu"` or `"tpu"`."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.default_backend()
    if backend == "torch":
        import torch

        return "gpu" if torch.cuda.is_available() else "cpu"
    import tensorflow as tf

    for name in ("TPU", "GPU"):
        if tf.config.list_logical_devices(name):
            return name.lower()
    return "cpu"


def records_gradients():
    """Whether a gradient may be asked for. PyTorch knows when it may not."""
    if not _on_torch():
        return True
    import torch

    return torch.is_grad_enabled()


def is_float16(dtype):
    """Whether a dtype is float16, whatever object it is."""
    return keras.backend.standardize_dtype(dtype) == "float16"


def fused_attention(query, key, value, bias, mask, scale, is_causal, flash_attention):
    """Return `ops.dot_product_attention`, with values of any size, and a `bias` or a `mask`.

    Fused kernels need values of the size of the keys, so zeros are appended to smaller values.
    Keras copies the heads for PyTorch's kernel, which does not need that.
    """
    size, padding = value.shape[-1], query.shape[-1] - value.shape[-1]
    if padding > 0 and keras.backend.backend() != "tensorflow":
        value = ops.pad(value, ((0, 0), (0, 0), (0, 0), (0, padding)))
    if _on_torch() and not flash_attention:
        mask = bias if mask is None else mask
        output = _torch_attention(query, key, value, mask, scale, is_causal)
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


def _torch_attention(query, key, value, mask, scale, is_causal):
    from torch.nn import functional

    if mask is not None and (mask.shape[-1] != key.shape[1] or mask.stride(-1) != 1):
        # Kernels on GPUs read rows of keys that are next to each other in memory.
        mask = mask.expand(*mask.shape[:-1], key.shape[1]).contiguous()
    output = functional.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=mask,
        scale=scale,
        is_causal=is_causal,
    )
    return output.transpose(1, 2)


def sliding_windows(inputs, size):
    """Return all windows of `size` along the last axis, as a new axis before it, or `None`.

    PyTorch makes them without a copy, if it knows the size. Other backends would have to gather
    them, so they get `None`.
    """
    is_view = _on_torch() and isinstance(size, int)
    return inputs.contiguous().unfold(-1, size, 1) if is_view else None


def arange(length):
    """Return the integers below `length`.

    By default, Keras gives them 16 bits if its `floatx` has 16 bits.
    """
    return ops.arange(0, length, dtype="int32")


def map_in_turn(function, blocks, dtype):
    """Return `ops.map(function, blocks)`, of this dtype, with one call in memory at a time."""
    if keras.backend.backend() != "tensorflow":
        return ops.map(function, blocks)
    import tensorflow as tf

    # Keras's map runs ten calls at a time, and one more to learn the shape of the result.
    return tf.map_fn(function, blocks, fn_output_signature=dtype, parallel_iterations=1)


def top_k(inputs, k):
    """Return the `k` largest values of the last axis, sorted, and their indices.

    Of equal values, the one of the lower index is first. PyTorch's own function has no such rule,
    so it gets integers of 64 bits: the order of the value, and then that of its index.

    Args:
        inputs: Tensor in float32.
        k: int.
    """
    if not _on_torch():
        return ops.top_k(inputs, k)
    import torch

    # Floats have the order of their bits as integers, but the lower ones come first below zero.
    bits = inputs.view(torch.int32)
    order = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(torch.int64)
    last = inputs.shape[-1] - 1
    reversed_indices = torch.arange(last, -1, -1, device=inputs.device)
    best = torch.topk((order << 32) | reversed_indices, k).values
    indices = last - (best & 0xFFFFFFFF)
    return inputs.gather(-1, indices), indices


def take_along_axis(inputs, indices, axis):
    """Return `ops.take_along_axis(inputs, indices, axis)`, for indices from 0 on.

    Keras also lets indices count from the end, which takes more operations on PyTorch.
    """
    if not _on_torch():
        return ops.take_along_axis(inputs, indices, axis)
    sizes = list(inputs.shape)
    sizes[axis] = indices.shape[axis]
    return inputs.gather(axis, indices.long().expand(sizes))


def slice(tensor, starts, sizes):
    """Return `ops.slice(tensor, starts, sizes)`.

    On PyTorch a start may be a traced tensor. On JAX a size may be a symbol, in a program that is
    exported for any length.
    """
    if keras.backend.backend() == "jax":
        for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            if not isinstance(size, int) and size is not tensor.shape[axis]:
                tensor = ops.take(tensor, arange(size) + start, axis=axis)
                starts, sizes = (*starts[:axis], 0, *starts[axis + 1 :]), tensor.shape
        return ops.slice(tensor, starts, sizes)
    if not _on_torch() or not any(map(ops.is_tensor, starts)):
        return ops.slice(tensor, starts, sizes)
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if ops.is_tensor(start):
            tensor = tensor.index_select(axis, _positions(start, size))
        else:
            tensor = tensor.narrow(axis, start, size)
    return tensor


def slice_update(tensor, starts, part):
    """Return `ops.slice_update(tensor, starts, part)`, where one start at most is not 0.

    Keras writes single numbers on PyTorch if a start is a tensor.
    """
    moved = [axis for axis, start in enumerate(starts) if ops.is_tensor(start)]
    if not _on_torch() or not moved:
        return ops.slice_update(tensor, starts, part)
    (axis,) = moved
    return tensor.index_copy(axis, _positions(starts[axis], part.shape[axis]), part)


def _positions(start, size):
    import torch

    return torch.arange(size, device=start.device) + start


def dropout(inputs, rate, seed, start):
    """Return `keras.random.dropout` of a block. Recomputing the block gives the same result.

    Args:
        inputs: Tensor.
        rate: float.
        seed: Tensor of two integers, as `keras.random.SeedGenerator.next` returns.
        start: int or scalar tensor. The position of the first row, which differs between blocks.
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


def float32_array(tensor):
    """Return a tensor or variable of any floating point dtype as a float32 array."""
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def _on_torch():
    return keras.backend.backend() == "torch"
