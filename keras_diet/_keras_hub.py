"""The private KerasHub names that this library cannot do without, gathered in one place.

Presets that are known by a name live in a registry that KerasHub keeps to itself, and so do the
functions that find a preset's files wherever they are.
"""

from keras_hub.src.utils.preset_utils import (
    BUILTIN_PRESETS,
    check_file_exists,
    load_json,
    register_presets,
)

__all__ = ["BUILTIN_PRESETS", "check_file_exists", "load_json", "register_presets"]
