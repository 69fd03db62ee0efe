"""Heads of all layers in an order in which those that share parameters are alike.

The order of the heads of a layer means nothing: permuted together with their rows of the output
projection they compute the same. Parameters that are shared by layers give it a meaning.
"""

import numpy as np

_ROUNDS = 5


def head_orders(scores):
    """Return the order of heads in each layer in which layers have the most alike scores.

    Args:
        scores: Array of shape `(num_layers, num_heads, n, n)`.

    Returns:
        Integer array of shape `(num_layers, num_heads)`: the head that comes to each place.
    """
    layers = np.arange(len(scores))[:, None]
    shared = scores[0]
    for _ in range(_ROUNDS):
        # h: places; g: heads
        products = np.einsum("hij,lgij->lhg", shared, scores)
        orders = np.stack([_match(matrix) for matrix in products])
        shared = scores[layers, orders].mean(axis=0)
    return orders


def _match(products):
    """Give each row a column of its own, the largest entry first."""
    products = products.copy()
    columns = np.zeros(len(products), dtype="int64")
    for _ in range(len(products)):
        row, column = np.unravel_index(np.argmax(products), products.shape)
        columns[row] = column
        products[row], products[:, column] = -np.inf, -np.inf
    return columns


def reorder_heads(attention, order):
    """Put the heads of an attention layer into another order; its outputs do not change."""
    for dense in (attention.query_dense, attention.key_dense, attention.value_dense):
        kernel, bias = dense.get_weights()
        dense.set_weights([kernel[:, order], bias[order]])
    kernel, bias = attention.output_dense.get_weights()
    attention.output_dense.set_weights([kernel[order], bias])
