"""The activation of BERT."""

import keras

from keras_diet.types import Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
def gelu_approximate(x: Tensor) -> Tensor:
    """Return BERT's activation: gelu, approximated with tanh."""
    return keras.activations.gelu(x, approximate=True)
