"""The private names of KerasHub that this library uses.

KerasHub has no public way to register the name of a preset, or to find and read the files of a
preset at any address. `OVERRIDDEN_METHODS` lists private methods that our classes override, with
the reason for each. Tests look all names up.
"""

from keras_hub.src.utils.preset_utils import (
    BUILTIN_PRESETS,
    check_file_exists,
    load_json,
    register_presets,
)

__all__ = [
    "BUILTIN_PRESETS",
    "OVERRIDDEN_METHODS",
    "check_file_exists",
    "load_json",
    "register_presets",
]

OVERRIDDEN_METHODS = {
    "Preprocessor._add_missing_kwargs": "No public method sets the lengths of a new preprocessor.",
    "TextEmbedderPreprocessor._format_output": "KerasHub makes no padding mask for embedders.",
}
