"""Position and segment information in the attention scores, for Keras 3 (DIET, EMNLP 2021).

`import keras_diet` imports no other package. Each room is imported when it is used first.
"""

import importlib
from typing import TYPE_CHECKING, Any

from keras_diet import _saved_files

if TYPE_CHECKING:
    from keras_diet import analysis, layers, metrics, models, pretraining, samplers, training

# The one place that holds the version.
__version__ = "0.1.0"

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


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"keras_diet.{name}")
    raise AttributeError(f"module 'keras_diet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_saved_files.register()
