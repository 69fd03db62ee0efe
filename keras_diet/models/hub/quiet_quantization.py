"""`quantize` without a warning for each layer that stays in float by design."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import keras

from keras_diet._compat import flatten_layers

# Float8 is for matrix products only, so embeddings know the other two modes.
_EXPECTED = (
    r"Layer \w+ does not have a `quantize` method implemented",
    r"Invalid quantization mode\. Expected one of \('int8', 'int4'\)\. .*=float8",
)


@contextlib.contextmanager
def quiet_quantization(model: keras.Model, filters: Any) -> Iterator[None]:
    """Silence Keras's warnings about layers without kernels while a model is quantized.

    Raises:
        ValueError: If no layer of the model is quantized at the end.
    """
    with warnings.catch_warnings():
        for message in _EXPECTED:
            warnings.filterwarnings("ignore", message, UserWarning)
        yield
    if not any(layer.quantization_mode for layer in flatten_layers(model)):
        raise ValueError(
            "`filters` must select at least one layer that can be quantized: an embedding, or a "
            f"dense layer such as 'query' or 'feedforward'. Received: filters={filters!r}"
        )
