"""JAX's attention kernel for TPUs, "splash attention", which holds no scores in memory.

Keras 3.15 calls it with the mask of the first example, or causally. The compiler cannot divide a
kernel among chips, so each is given its part of the batch and of the heads.
"""

import functools

import keras
from keras import ops

from keras_diet.layers.attention.lowering import append_columns

# The width of the chip's vectors, and the most rows that the kernel gets at a time.
_LANES = 128
_LARGEST_BLOCK = 512


def splash_attention(query, key, value, bias, scale, is_causal):
    """Return the attention of heads on the TPUs of JAX, without dropout.

    Args:
        query: Tensor `(B, T, H, key_dim)`.
        key: Tensor `(B, S, H, key_dim)`.
        value: Tensor `(B, S, H, value_dim)`.
        bias: Tensor `(B or 1, H or 1, 1, S or 1)`, or `None`. The kernel has no argument for it: it
            becomes a feature of the keys.
        scale: float. Factor of the products of queries and keys.
        is_causal: bool. Whether a query attends only to its position and earlier ones.

    Returns:
        Tensor `(B, T, H, value_dim)`, of the dtype of the query.
    """
    import jax

    query = query * scale
    if bias is not None:
        bias = ops.broadcast_to(bias, (*bias.shape[:3], key.shape[1]))
        query = append_columns(query, ops.ones((1, query.shape[1], 1, 1)))
        key = append_columns(key, ops.transpose(bias, (0, 3, 1, 2)))
    attend = functools.partial(_attend_on_chip, is_causal=is_causal)
    distribution = keras.distribution.distribution()
    if distribution is not None:
        part = _part_of_chip(distribution, batch_size=query.shape[0], num_heads=query.shape[2])
        mesh = distribution.device_mesh.backend_mesh
        attend = jax.shard_map(
            attend, mesh=mesh, in_specs=(part, part, part), out_specs=part, check_vma=False
        )
    return attend(query, key, value)


def _part_of_chip(distribution, batch_size, num_heads):
    """Return the axes of the mesh among which the batch and the heads are divided, if they can.

    Heads go to the largest of the axes that divide them.
    """
    from jax.sharding import PartitionSpec

    mesh, batch_axis = distribution.device_mesh, distribution.batch_dim_name
    sizes = dict(zip(mesh.axis_names, mesh.shape, strict=True))
    batch = batch_axis if batch_size % sizes.pop(batch_axis, 1) == 0 else None
    sizes = {axis: size for axis, size in sizes.items() if num_heads % size == 0}
    return PartitionSpec(batch, None, max(sizes, key=sizes.get, default=None))


def _attend_on_chip(query, key, value, is_causal):
    import jax
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    length, key_length, value_dim = query.shape[1], key.shape[1], value.shape[3]
    query_block, key_block = _block_size(length), _block_size(key_length)
    query = _padded(query, query_block)
    key = _padded(key, key_block)
    # Some versions refuse smaller values. They are as large in the memory of a TPU.
    value = _padded(value, key_block, size_multiple=_LANES)
    shape = query.shape[2], key.shape[2]
    mask = splash.CausalMask(shape) if is_causal else splash.FullMask(shape)
    kernel = splash.make_splash_mha(
        splash.MultiHeadMask([mask] * query.shape[1]),
        block_sizes=splash.BlockSizes(
            block_q=query_block,
            block_kv=key_block,
            block_q_dkv=query_block,
            block_kv_dkv=key_block,
            block_q_dq=query_block,
            block_kv_dq=key_block,
        ),
        head_shards=1,
        q_seq_shards=1,
    )
    segment_ids = None
    if shape[1] > key_length:
        # Queries are of segment 1, padded keys of segment 0.
        is_key = ops.cast(ops.arange(shape[1]) < key_length, "int32")
        segment_ids = splash.SegmentIds(ops.ones((shape[0],), "int32"), is_key)
    output = jax.vmap(functools.partial(kernel, segment_ids=segment_ids))(query, key, value)
    return ops.transpose(output, (0, 2, 1, 3))[:, :length, :, :value_dim]


def _block_size(length):
    return min(_LARGEST_BLOCK, _next_multiple(length, _LANES))


def _padded(heads, block_size, size_multiple=1):
    """Return heads `(B, T, H, d)` as `(B, H, T, d)`, with zeros behind, up to multiples."""
    _, length, _, size = heads.shape
    padding = [(0, 0), (0, 0), (0, _next_multiple(length, block_size) - length)]
    padding.append((0, _next_multiple(size, size_multiple) - size))
    return ops.pad(ops.transpose(heads, (0, 2, 1, 3)), padding)


def _next_multiple(number, factor):
    return -(-number // factor) * factor
