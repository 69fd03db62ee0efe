"""The mean of the weights of several checkpoints."""

import keras
import numpy as np
import pytest

from keras_diet.training import average_weights
from tests.helpers import assert_close


class Counted(keras.layers.Layer):
    """A layer with a weight of integers."""

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(2, 3))
        self.count = self.add_weight(shape=(), dtype="int32", trainable=False, initializer="zeros")

    def call(self, inputs):
        return keras.ops.matmul(inputs, self.kernel)


def test_mean_of_three_files(tmp_path, rng):
    model = keras.Sequential([keras.Input((2,)), Counted()])
    files, kernels = [], []
    for number in (4, 7, 6):
        kernel = rng.normal(size=(2, 3)).astype("float32")
        model.layers[0].kernel.assign(kernel)
        model.layers[0].count.assign(number)
        files.append(tmp_path / f"{number}.weights.h5")
        kernels.append(kernel)
        model.save_weights(files[-1])
    average_weights(model, iter(files))
    assert_close(model.layers[0].kernel, np.mean(kernels, axis=0))
    assert int(model.layers[0].count) == 6
    assert model.layers[0].count.dtype == "int32"


@pytest.mark.any_backend
def test_the_mean_is_computed_in_float64(tmp_path):
    """In float32 it would be 5592407.0."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    files = [tmp_path / f"{number}.weights.h5" for number in range(3)]
    for file, value in zip(files, (2.0**24, 3.0, 1.0), strict=True):
        model.set_weights([np.full((1, 1), value)])
        model.save_weights(file)
    average_weights(model, files)
    assert float(model.get_weights()[0][0, 0]) == 5592406.5


@pytest.mark.any_backend
@pytest.mark.parametrize("paths", [[], "a.weights.h5"])
def test_paths_are_checked(paths):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="`paths` must be a list of at least one file"):
        average_weights(model, paths)
