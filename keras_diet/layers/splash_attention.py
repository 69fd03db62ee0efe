"""JAX's attention kernel for TPUs, "splash attention", which holds no scores in memory.

Keras 3.15 calls it with the mask of the first example, or causally. The compiler cannot divide a
kernel among chips, so each is given its part of the batch and of the heads.
"""

import functools

import keras
from keras import ops

# Lengths are padded to a multiple of the smallest, the width of the chip's vectors. Larger blocks
# read keys and values less often.
_BLOCK_SIZES = (512, 256, 128)


def splash_attention(query, key, value, is_causal):
    """Return the attention of heads on the TPUs of JAX, without dropout.

    Args:
        query: Tensor `(B, T, H, key_dim)`, scaled.
        key: Tensor `(B, S, H, key_dim)`.
        value: Tensor `(B, S, H, value_dim)`.
        is_causal: bool. Whether a query attends to no later key.

    Returns:
        Tensor `(B, T, H, value_dim)`, of the dtype of the query.
    """
    import jax

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
    """Return the axes of the mesh among which the batch and the heads are divided, if they can."""
    from jax.sharding import PartitionSpec

    mesh, batch_axis = distribution.device_mesh, distribution.batch_dim_name
    sizes = dict(zip(mesh.axis_names, mesh.shape, strict=True))
    batch = batch_axis if batch_size % sizes.pop(batch_axis, 1) == 0 else None
    heads = [axis for axis, size in sizes.items() if num_heads % size == 0][:1]
    return PartitionSpec(batch, None, *heads)


def _attend_on_chip(query, key, value, is_causal):
    import jax
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    length, key_length = query.shape[1], key.shape[1]
    query, key, value = (_padded(ops.transpose(x, (0, 2, 1, 3))) for x in (query, key, value))
    shape = query.shape[2], key.shape[2]
    mask = splash.CausalMask(shape) if is_causal else splash.FullMask(shape)
    kernel = splash.make_splash_mha(
        splash.MultiHeadMask([mask] * query.shape[1]),
        block_sizes=_block_sizes(*shape),
        head_shards=1,
        q_seq_shards=1,
    )
    numbers = None
    if shape[1] > key_length:
        # A query attends to the keys of its own number.
        not_padding = ops.cast(ops.arange(shape[1]) < key_length, "int32")
        numbers = splash.SegmentIds(ops.ones((shape[0],), "int32"), not_padding)
    output = jax.vmap(functools.partial(kernel, segment_ids=numbers))(query, key, value)
    return ops.transpose(output, (0, 2, 1, 3))[:, :length]


def _padded(heads):
    padding = -heads.shape[2] % _BLOCK_SIZES[-1]
    return ops.pad(heads, ((0, 0), (0, 0), (0, padding), (0, 0)))


def _block_sizes(length, key_length):
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    query, key = (
        next(size for size in _BLOCK_SIZES if x % size == 0) for x in (length, key_length)
    )
    return splash.BlockSizes(
        block_q=query,
        block_kv=key,
        block_q_dkv=query,
        block_kv_dkv=key,
        block_q_dq=query,
        block_kv_dq=key,
    )
