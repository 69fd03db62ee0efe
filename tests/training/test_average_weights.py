"""The mean of the weights of several checkpoints."""

import keras
import numpy as np
import pytest

from keras_diet.training import average_weights
from tests.helpers import to_numpy


class Counted(keras.layers.Layer):
    """A layer with a weight of integers."""

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(2, 3))
        self.count = self.add_weight(shape=(), dtype="int32", trainable=False, initializer="zeros")

    def call(self, inputs):
        return keras.ops.matmul(inputs, self.kernel)


def test_mean_of_three_files(tmp_path):
    """In float64. In float32 the mean of these kernels would be 5592407.0."""
    model = keras.Sequential([keras.Input((2,)), Counted()])
    layer, files = model.layers[0], []
    for count, value in ((4, 2.0**24), (7, 3.0), (6, 1.0)):
        layer.set_weights([np.full((2, 3), value), np.array(count)])
        files.append(tmp_path / f"{count}.weights.h5")
        model.save_weights(files[-1])
    average_weights(model, iter(files))
    assert to_numpy(layer.kernel).tolist() == [[5592406.5] * 3] * 2
    assert int(layer.count) == 6
    assert layer.count.dtype == "int32"


@pytest.mark.any_backend
@pytest.mark.parametrize("paths", [[], "a.weights.h5"])
def test_paths_are_checked(paths):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="`paths` must be a list of at least one file"):
        average_weights(model, paths)
