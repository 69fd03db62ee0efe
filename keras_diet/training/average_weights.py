"""The mean of the weights of several checkpoints."""

import os
from collections.abc import Iterable

import keras
import numpy as np


def average_weights(model: keras.Model, paths: Iterable[str | os.PathLike[str]]) -> None:
    """Load the mean of the weights in several files into a model.

    Each weight becomes the mean of its values in the files. A weight of integers keeps its value in
    the last file. So does the state of the optimizer.

    Args:
        model: A model that is built.
        paths: Files that `model.save_weights` wrote, for example at the last five epochs.

    Raises:
        ValueError: If `paths` is empty, or if a file does not fit the model. The model may then
            have the weights of an earlier file.

    Example:

    ```python
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    for epoch in range(2):
        model.save_weights(f"epoch_{epoch}.weights.h5")
    keras_diet.training.average_weights(model, ["epoch_0.weights.h5", "epoch_1.weights.h5"])
    ```

    References:
     - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 6.1
    """
    files = [] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not files:
        raise ValueError(f"`paths` must be a list of at least one file. Received: paths={paths!r}")
    means = [np.zeros(weight.shape) for weight in model.weights]
    for number, path in enumerate(files, start=1):
        model.load_weights(path)
        values = model.get_weights()
        means = [mean + (value - mean) / number for mean, value in zip(means, values, strict=True)]
    for weight, mean, value in zip(model.weights, means, values, strict=True):
        weight.assign(mean if keras.backend.is_float_dtype(weight.dtype) else value)
