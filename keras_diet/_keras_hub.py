"""The private names of KerasHub that this library uses.

KerasHub has no public way to register the name of a preset, or to read the files of a preset at any
address. It also has none to know that a preprocessor runs in Grain, or to split a text into the
same words as its tokenizer. `OVERRIDDEN_METHODS` lists private methods that our classes override,
with the reason for each. Tests look all names up.
"""

from keras_hub.src.tokenizers.word_piece_tokenizer import MAX_BYTES_PER_WORD, pretokenize_python
from keras_hub.src.utils.preset_utils import (
    BUILTIN_PRESETS,
    check_file_exists,
    load_json,
    register_presets,
)
from keras_hub.src.utils.tensor_utils import convert_preprocessing_outputs_python

__all__ = [
    "BUILTIN_PRESETS",
    "MAX_BYTES_PER_WORD",
    "OVERRIDDEN_METHODS",
    "check_file_exists",
    "convert_preprocessing_outputs_python",
    "load_json",
    "pretokenize_python",
    "register_presets",
]

OVERRIDDEN_METHODS = {
    "Preprocessor._add_missing_kwargs": "No public method sets the lengths of a new preprocessor.",
    "TextEmbedderPreprocessor._format_output": "KerasHub makes no padding mask for embedders.",
}
