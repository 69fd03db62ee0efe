"""What the training of a model needs beside the model.

- `InverseSquareRootDecay` is the learning rate of the first Transformer.
- `SmoothedCategoricalCrossentropy` is its loss, the cross-entropy with label smoothing.
- `TokenBatches` makes batches with about the same number of tokens.
- `average_weights` loads the mean of several files of weights.
"""

from keras_diet.training.average_weights import average_weights
from keras_diet.training.inverse_square_root_decay import InverseSquareRootDecay
from keras_diet.training.smoothed_categorical_crossentropy import SmoothedCategoricalCrossentropy
from keras_diet.training.token_batches import TokenBatches

__all__ = [
    "InverseSquareRootDecay",
    "SmoothedCategoricalCrossentropy",
    "TokenBatches",
    "average_weights",
]
