"""Says which command installs what a room needs beside Keras and NumPy.

A room that needs more than those two imports this module first.
"""

import importlib.util
from typing import Any

# The packages that the extra `models` installs, without `transformers`, which only folders of
# Hugging Face need.
PACKAGES = ("grain", "keras_hub", "safetensors", "sentencepiece", "tokenizers", "tqdm")

_missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
if _missing:
    raise ImportError(
        "`keras_diet.layers`, `keras_diet.metrics` and `keras_diet.training` need Keras and NumPy. "
        f"The rest also needs {', '.join(_missing)}. Install what is missing, with the name of "
        'your backend: `pip install ".[jax]"` in a clone of keras_diet, or [tensorflow] or [torch].'
    )


def import_transformers() -> Any:
    """Return the package `transformers`. Its import takes seconds.

    Raises:
        ImportError: If it is not installed.
    """
    if importlib.util.find_spec("transformers") is None:
        raise ImportError(
            "Folders of Hugging Face need `transformers`, which reads their configurations and "
            'tokenizers. Run `pip install "transformers>=5.23"`. It needs no PyTorch for this.'
        )
    import transformers

    return transformers
