"""What `metadata.json` of a preset says about the library that reads it."""

import inspect
import json
from pathlib import Path

import keras
from keras_hub.models import Task

from keras_diet.version import __version__


def write_library_metadata(preset_dir, backbone_cls):
    """Add the version of this library, and name the tasks as KerasHub does.

    KerasHub lists the first base of each task's class, which for ours and for classes that users
    derive from ours is not KerasHub's.
    """
    file = Path(preset_dir) / "metadata.json"
    metadata = json.loads(file.read_text(encoding="utf-8"))
    tasks = {
        _kerashub_base(registered).__name__
        for registered in set(keras.saving.get_custom_objects().values())
        if inspect.isclass(registered)
        and issubclass(registered, Task)
        and registered.backbone_cls is backbone_cls
    }
    metadata.update(keras_diet_version=__version__, tasks=sorted(tasks))
    file.write_text(json.dumps(metadata, indent=4), encoding="utf-8")


def _kerashub_base(cls):
    return next(base for base in cls.__mro__ if base.__module__.startswith("keras_hub."))
