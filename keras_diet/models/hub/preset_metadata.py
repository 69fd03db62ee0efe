"""What `metadata.json` of a preset says about this library."""

import inspect
import json
import os
from pathlib import Path

import keras
from keras_hub.models import Task

from keras_diet.version import __version__


def write_library_metadata(preset_dir: str | os.PathLike[str], backbone_cls: type) -> None:
    """Add the version of this library, and name the tasks as KerasHub names them.

    KerasHub writes the first base class of each task. Our tasks, and tasks that users derive from
    ours, have a base class of this library there. KerasHub has no name for tasks that derive from
    `Task` itself.
    """
    file = Path(preset_dir) / "metadata.json"
    metadata = json.loads(file.read_text(encoding="utf-8"))
    tasks = {
        _keras_hub_base(registered).__name__
        for registered in set(keras.saving.get_custom_objects().values())
        if inspect.isclass(registered)
        and issubclass(registered, Task)
        and getattr(registered, "backbone_cls", None) is backbone_cls
    }
    metadata.update(keras_diet_version=__version__, tasks=sorted(tasks - {Task.__name__}))
    file.write_text(json.dumps(metadata, indent=4), encoding="utf-8")


def _keras_hub_base(cls: type[Task]) -> type:
    return next(base for base in cls.__mro__ if base.__module__.startswith("keras_hub."))
