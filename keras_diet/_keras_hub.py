"""The private names of KerasHub that this library uses.

KerasHub has no public way to register the name of a preset, or to find and read the files of a
preset at any address.
"""

from keras_hub.src.utils.preset_utils import (
    BUILTIN_PRESETS,
    check_file_exists,
    load_json,
    register_presets,
)

__all__ = ["BUILTIN_PRESETS", "check_file_exists", "load_json", "register_presets"]
