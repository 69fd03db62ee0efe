"""Attention in tiles on JAX, with a bias by distance and its gradient: a kernel in Pallas.

Queries and keys come in blocks of `n`. A tile holds the scores of a block of queries and a block of
keys, and exists only while a program of the kernel computes it. The bias of the tile of blocks `r`
and `c` depends on `c - r` alone. So all tiles of a diagonal have the same bias, and a bias has

    ceil(T / n) + ceil(S / n) - 1

different tiles, which are made before the kernel runs. The gradient of such a tile is the sum of
the gradients of the scores along a diagonal of tiles. One program computes it, tile after tile, so
no programs write to the same place, and two runs have equal gradients. Memory is linear in the
length, forward and backward: the gradient computes each tile again from the logarithm of the sum of
each row, as in FlashAttention.

References:
 - [Dao, 2023](https://arxiv.org/abs/2307.08691), algorithms 1 and 2
"""

import dataclasses
import functools
from typing import Any

import keras
from keras import ops

from keras_diet import _backend
from keras_diet.layers.attention.prepared_terms import MASKED, PreparedTerms
from keras_diet.layers.attention.score_terms import (
    NO_KEY,
    ScoreTerms,
    ids_of_tokens,
    positions_in_documents,
)
from keras_diet.layers.position.relative_shift import distances_to_keys
from keras_diet.types import Tensor

# Number of queries and of keys in a tile: what registers hold on GPUs, and a row of lanes on TPUs.
TILE_SIZES = {"cpu": 64, "gpu": 64, "tpu": 128}
# Kernels on GPUs need sizes that are powers of two, and at least this number for products.
SMALLEST_HEAD = 16
# Memory that a kernel on a TPU may use for whole sequences of keys. By default it is less.
TPU_MEMORY = 100 * 2**20


@dataclasses.dataclass(frozen=True)
class TileSettings:
    """What is fixed when a kernel is compiled."""

    size: int
    scale: float
    is_causal: bool
    sliding_window: int | None
    platform: str


def attend_by_tiles(
    query: Tensor, key: Tensor, value: Tensor, terms: PreparedTerms
) -> tuple[Tensor, None]:
    """Return the output of all heads. Shapes are as in `attend`."""
    platform = _backend.platform()
    size, value_dim = TILE_SIZES[platform], value.shape[-1]
    settings = TileSettings(size, terms.scale, terms.is_causal, terms.sliding_window, platform)
    lengths = query.shape[1], key.shape[1]
    num_blocks = [-(-length // size) for length in lengths]
    query_ids, key_ids = ids_of_tokens(terms, query.shape[0], lengths)
    # Nobody reads the outputs of queries that fill the last block, so their gradients are zero.
    query_ids, key_ids = (
        _padded(ids, 1, blocks * size, NO_KEY)
        for ids, blocks in zip((query_ids, key_ids), num_blocks, strict=True)
    )
    heads = []
    for tensor, blocks in zip(
        (query, key, value), (num_blocks[0], *2 * num_blocks[1:]), strict=True
    ):
        tensor = _padded(ops.swapaxes(tensor, 1, 2), 2, blocks * size)
        heads.append(_padded(tensor, 3, max(SMALLEST_HEAD, _next_power_of_two(tensor.shape[3]))))
    tiles = None
    if terms.by_distance is not None:
        tiles = tiles_of_distances(terms.by_distance, lengths, size)
    output = _attention(settings)(
        *heads,
        tiles,
        *(ops.expand_dims(query_ids, 2), ops.expand_dims(key_ids, 1)),
        bounds_of_blocks(terms, query.shape[0], lengths, size),
    )
    return ops.swapaxes(output[:, :, : lengths[0], :value_dim], 1, 2), None


def tiles_of_distances(by_distance: Tensor, lengths: tuple[int, int], size: int) -> Tensor:
    """Return the bias of the tiles of all diagonals, `(H, diagonals, size, size)`.

    Args:
        by_distance: Tensor `(H, T + S - 1)`, as in `PreparedTerms`.
        lengths: tuple `(T, S)`.
        size: int. Number of queries and of keys in a tile.
    """
    before, after = (-length % size for length in lengths)
    padded = ops.pad(by_distance, ((0, 0), (before, after + 1)))
    blocks = ops.reshape(padded, (padded.shape[0], -1, size))
    rows = ops.concatenate([blocks[:, :-1], blocks[:, 1:]], axis=2)[:, :, None, :-1]
    rows = ops.broadcast_to(rows, (*rows.shape[:2], size, 2 * size - 1))
    return distances_to_keys(rows, size, size)


def bounds_of_blocks(
    terms: ScoreTerms, batch_size: int, lengths: tuple[int, int], size: int
) -> tuple[Tensor, Tensor]:
    """Return which blocks a block attends to: the first one, and one behind the last one.

    Args:
        terms: The terms. Queries begin at position 0.
        batch_size: int.
        lengths: tuple `(T, S)`.
        size: int. Number of tokens in a block.

    Returns:
        Blocks of keys for each block of queries, `(B, 2, ceil(T / size))`, and blocks of queries
        for each block of keys, `(B, 2, ceil(S / size))`.
    """
    num_rows, num_columns = (-(-length // size) for length in lengths)
    positions = ops.broadcast_to(_backend.arange(lengths[0]), (batch_size, lengths[0]))
    first, last = ops.zeros_like(positions), ops.full_like(positions, lengths[1] - 1)
    if terms.is_causal:
        last = ops.minimum(last, positions)
    if terms.sliding_window is not None:
        first = ops.maximum(first, positions - terms.sliding_window + 1)
        last = ops.minimum(last, positions + terms.sliding_window - 1)
    if terms.document_ids is not None:
        before = positions_in_documents(terms.document_ids)
        behind = ops.flip(positions_in_documents(ops.flip(terms.document_ids, 1)), 1)
        first, last = ops.maximum(first, positions - before), ops.minimum(last, positions + behind)
    # Tokens that fill the last block attend to nothing.
    first = _padded(first, 1, num_rows * size, lengths[1])
    last = _padded(last, 1, num_rows * size, -1)
    first = ops.min(ops.reshape(first, (batch_size, num_rows, size)), axis=2) // size
    end = ops.max(ops.reshape(last, (batch_size, num_rows, size)), axis=2) // size + 1
    columns = _backend.arange(num_columns)
    attends = (first[:, :, None] <= columns) & (columns < end[:, :, None])
    attends = ops.cast(attends, "int32")
    first_row = ops.argmax(attends, axis=1)
    end_row = num_rows - ops.argmax(ops.flip(attends, 1), axis=1)
    end_row = ops.where(ops.max(attends, axis=1) > 0, end_row, first_row)
    bounds = ops.stack([first, end], axis=1), ops.stack([first_row, end_row], axis=1)
    return tuple(ops.cast(each, "int32") for each in bounds)


def _padded(tensor, axis, size, value=0):
    widths = [(0, size - tensor.shape[each] if each == axis else 0) for each in range(tensor.ndim)]
    return ops.pad(tensor, widths, constant_values=value)


def _next_power_of_two(size):
    return 1 << (size - 1).bit_length()


# === The kernels ===


@functools.cache
def _attention(settings):
    """Return attention of queries, keys, values and tiles of a bias, with its gradient."""
    import jax
    from jax import numpy as jnp

    def attention(query, key, value, tiles, query_ids, key_ids, bounds):
        return forward(query, key, value, tiles, query_ids, key_ids, bounds)[0]

    def forward(query, key, value, tiles, query_ids, key_ids, bounds):
        output, log_sums = _call(
            *(_forward, settings, "rows", (query, key, value, tiles, query_ids, key_ids)),
            *(bounds[0], ((value.shape[-1], query.dtype), (1, "float32"))),
        )
        return output, (query, key, value, tiles, query_ids, key_ids, bounds, output, log_sums)

    def backward(saved, gradient):
        query, key, value, tiles, _query_ids, _key_ids, bounds, output, log_sums = saved
        products = gradient.astype("float32") * output.astype("float32")
        inputs = (*saved[:6], gradient, log_sums, jnp.sum(products, axis=-1, keepdims=True))
        of_query = (query.shape[-1], query.dtype)
        of_key, of_value = (key.shape[-1], key.dtype), (value.shape[-1], value.dtype)
        (query_gradient,) = _call(_query_gradient, settings, "rows", inputs, bounds[0], (of_query,))
        key_gradient, value_gradient = _call(
            _key_gradient, settings, "columns", inputs, bounds[1], (of_key, of_value)
        )
        tile_gradient = None
        if tiles is not None:
            of_tiles = (settings.size, "float32")
            (tile_gradients,) = _call(
                _tile_gradient, settings, "diagonals", inputs, bounds[0], (of_tiles,)
            )
            # One sum of what the programs computed for each example.
            tile_gradient = jnp.sum(tile_gradients.reshape(-1, *tiles.shape), axis=0)
        return query_gradient, key_gradient, value_gradient, tile_gradient, None, None, None

    attention = jax.custom_vjp(attention)
    attention.defvjp(forward, backward)
    return attention


def _call(kernel, settings, axis, inputs, bounds, outputs):
    """Run a program of a kernel for each example, head, and block of an axis.

    Args:
        kernel: Function of the settings, the number of the block, references to whole sequences
            `inputs`, a reference to `bounds`, and references to a block of each output.
        settings: The `TileSettings`.
        axis: `"rows"`, `"columns"` or `"diagonals"` of tiles.
        inputs: Queries, keys, values, tiles of the bias or `None`, ids of queries, ids of keys; and
            for gradients the gradient of the output, and two numbers for each query.
        bounds: Blocks of the other axis, of each block.
        outputs: Last size and dtype of each output.
    """
    import jax
    from jax.experimental import pallas as pl

    size, platform = settings.size, settings.platform
    query, key, _, tiles, *_ = inputs
    batch_size, num_heads = query.shape[:2]
    rows, columns = (each.shape[2] // size for each in (query, key))
    num_blocks = {"rows": rows, "columns": columns, "diagonals": rows + columns - 1}[axis]

    def whole(array):
        """The rows of an example and a head. An array has both axes, or one of them."""
        where = {4: lambda b, h, block: (b, h, 0, 0), 3: lambda b, h, block: (b, 0, 0)}[array.ndim]
        return pl.BlockSpec((*(None,) * (array.ndim - 2), *array.shape[-2:]), where)

    specs = [None if each is None else whole(each) for each in inputs]
    if tiles is not None:
        specs[3] = pl.BlockSpec((None, *tiles.shape[1:]), lambda b, h, block: (h, 0, 0, 0))

    def run(*references):
        references = iter(references)
        # The program gets nothing in the place of tiles that there are not.
        of_inputs = [None if each is None else next(references) for each in inputs]
        kernel(settings, pl.program_id(2), *of_inputs, *references)

    params: dict[str, Any] = {"interpret": platform == "cpu"}
    of_bounds = whole(bounds)
    if platform == "gpu":
        from jax.experimental.pallas import triton

        params["compiler_params"] = triton.CompilerParams(num_warps=4, num_stages=2)
    if platform == "tpu":
        from jax.experimental.pallas import tpu

        params["compiler_params"] = tpu.CompilerParams(vmem_limit_bytes=TPU_MEMORY)
        of_bounds = dataclasses.replace(of_bounds, memory_space=tpu.SMEM)
    return pl.pallas_call(
        run,
        grid=(batch_size, num_heads, num_blocks),
        in_specs=[*(spec for spec in specs if spec is not None), of_bounds],
        out_specs=[
            pl.BlockSpec((None, None, size, last), lambda b, h, block: (b, h, block, 0))
            for last, _ in outputs
        ],
        out_shape=[
            jax.ShapeDtypeStruct((batch_size, num_heads, num_blocks * size, last), dtype)
            for last, dtype in outputs
        ],
        **params,
    )(*(each for each in inputs if each is not None), bounds)


def _forward(settings, row, query, key, value, tiles, query_ids, key_ids, bounds, output, log_sums):
    """Compute the outputs of a block of queries, and the logarithm of each sum of its softmax."""
    from jax import lax
    from jax import numpy as jnp

    def add_tile(column, carry):
        total, largest, sums = carry
        scores = _scores(settings, row, column, query, key, tiles, query_ids, key_ids)
        new = jnp.maximum(largest, jnp.max(scores, axis=1, keepdims=True))
        weights, factor = _exp(scores, new), jnp.exp(largest - new)
        values = _block(settings, value, column)
        total = total * factor + _product(weights.astype(values.dtype), values)
        return total, new, sums * factor + jnp.sum(weights, axis=1, keepdims=True)

    column_of_zeros = jnp.zeros((settings.size, 1), "float32")
    start = (jnp.zeros(output.shape, "float32"), column_of_zeros + MASKED, column_of_zeros)
    total, largest, sums = lax.fori_loop(bounds[0, row], bounds[1, row], add_tile, start)
    # A query that may attend to no key has an output of zero.
    sums = jnp.where(sums == 0.0, 1.0, sums)
    output[...] = (total / sums).astype(output.dtype)
    log_sums[...] = largest + jnp.log(sums)


def _query_gradient(settings, row, *references):
    from jax import lax
    from jax import numpy as jnp

    *inputs, bounds, gradient = references

    def add_tile(column, total):
        keys = _block(settings, inputs[1], column)
        of_scores = _probabilities_and_gradient(settings, row, column, *inputs)[1]
        return total + _product(of_scores.astype(keys.dtype), keys)

    start = jnp.zeros(gradient.shape, "float32")
    total = lax.fori_loop(bounds[0, row], bounds[1, row], add_tile, start)
    gradient[...] = (settings.scale * total).astype(gradient.dtype)


def _key_gradient(settings, column, *references):
    """Compute the gradients of a block of keys and of their values."""
    from jax import lax
    from jax import numpy as jnp

    *inputs, bounds, key_gradient, value_gradient = references
    query, of_output = inputs[0], inputs[6]

    def add_tile(row, totals):
        queries, outputs = (_block(settings, each, row) for each in (query, of_output))
        tile = _probabilities_and_gradient(settings, row, column, *inputs)
        probabilities, of_scores = (each.T.astype(queries.dtype) for each in tile)
        of_keys = totals[0] + _product(of_scores, queries)
        return of_keys, totals[1] + _product(probabilities, outputs)

    start = tuple(jnp.zeros(each.shape, "float32") for each in (key_gradient, value_gradient))
    totals = lax.fori_loop(bounds[0, column], bounds[1, column], add_tile, start)
    key_gradient[...] = (settings.scale * totals[0]).astype(key_gradient.dtype)
    value_gradient[...] = totals[1].astype(value_gradient.dtype)


def _tile_gradient(settings, diagonal, *references):
    """Compute the sum of the gradients of all scores that have the bias of one tile."""
    from jax import lax
    from jax import numpy as jnp

    *inputs, bounds, gradient = references
    num_rows, num_columns = (each.shape[0] // settings.size for each in inputs[:2])
    shift = diagonal - (num_rows - 1)

    def add_tile(row, total):
        column = row + shift

        def added(total):
            return total + _probabilities_and_gradient(settings, row, column, *inputs)[1]

        attends = (bounds[0, row] <= column) & (column < bounds[1, row])
        return lax.cond(attends, added, lambda total: total, total)

    first = jnp.maximum(0, -shift)
    end = jnp.minimum(num_rows, num_columns - shift)
    gradient[...] = lax.fori_loop(first, end, add_tile, jnp.zeros(gradient.shape, "float32"))


def _probabilities_and_gradient(
    settings, row, column, query, key, value, tiles, query_ids, key_ids, gradient, log_sums, sums
):
    """Return the probabilities of a tile, and the gradient of its scores."""
    scores = _scores(settings, row, column, query, key, tiles, query_ids, key_ids)
    probabilities = _exp(scores, _block(settings, log_sums, row))
    outputs, values = _block(settings, gradient, row), _block(settings, value, column)
    of_probabilities = _product(outputs, values.T)
    return probabilities, probabilities * (of_probabilities - _block(settings, sums, row))


def _scores(settings, row, column, query, key, tiles, query_ids, key_ids):
    """Return the scores of a tile. Pairs that a mask excludes have `MASKED`."""
    import jax
    from jax import numpy as jnp

    size = settings.size
    num_rows = query.shape[0] // size
    scores = _product(_block(settings, query, row), _block(settings, key, column).T)
    scores = settings.scale * scores
    if tiles is not None:
        scores += tiles[column - row + num_rows - 1]
    mask = _block(settings, query_ids, row) == _block(settings, key_ids, column, axis=1)
    if settings.is_causal or settings.sliding_window is not None:
        query_index, key_index = (
            jax.lax.broadcasted_iota("int32", scores.shape, i) for i in (0, 1)
        )
        distance = (column - row) * size + key_index - query_index
        if settings.is_causal:
            mask &= distance <= 0
        if settings.sliding_window is not None:
            mask &= jnp.abs(distance) < settings.sliding_window
    return jnp.where(mask, scores, MASKED)


def _exp(scores, shift):
    """Return `exp(scores - shift)`, and zero where a mask excludes a pair."""
    from jax import numpy as jnp

    return jnp.where(scores == MASKED, 0.0, jnp.exp(scores - shift))


def _block(settings, reference, number, axis=0):
    """Return a block of rows, or with `axis=1` of columns."""
    from jax.experimental import pallas as pl

    part = pl.ds(pl.multiple_of(number * settings.size, settings.size), settings.size)
    return reference[part, :] if axis == 0 else reference[:, part]


def _product(left, right):
    """Return the product of two matrices in float32."""
    import jax

    is_exact = keras.backend.standardize_dtype(left.dtype) == "float32"
    return jax.numpy.dot(
        *(left, right),
        precision=jax.lax.Precision.HIGHEST if is_exact else None,
        preferred_element_type="float32",
    )
