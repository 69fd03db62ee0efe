"""Weights and scores as NumPy arrays."""

from keras import ops


def float32_array(tensor):
    """Return a tensor or variable of any floating point dtype as a float32 array."""
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))
