"""Position and segment information in the attention scores, for Keras 3 (DIET, EMNLP 2021)."""

from keras_diet import analysis, layers, metrics, models, pretraining, samplers, training
from keras_diet.version import __version__

__all__ = [
    "__version__",
    "analysis",
    "layers",
    "metrics",
    "models",
    "pretraining",
    "samplers",
    "training",
]
