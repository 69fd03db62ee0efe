"""Whether the preset of a task has all files of its head."""

import keras
from keras_hub.models import Task

from keras_diet import _compat

_NEW_HEAD = (
    "Copy or save it again, pass `num_classes` for a new head, or pass `load_weights=False`."
)


def check_head_is_described(preset: str) -> None:
    """Raise a `ValueError` if a preset has the weights of a head but not its configuration."""
    has_weights = _compat.check_file_exists(preset, "task.weights.h5")
    if has_weights and not _compat.check_file_exists(preset, "task.json"):
        raise ValueError(
            f"Preset {preset} has no task.json, which describes the head. Received: only the "
            f"weights of the head. {_NEW_HEAD}"
        )


def check_head_has_weights(preset: str, task: Task) -> None:
    """Raise a `ValueError` if a preset has the configuration of this task but not its weights."""
    if not task.has_task_weights() or not _compat.check_file_exists(preset, "task.json"):
        return
    saved = _compat.load_json(preset, "task.json")["registered_name"]
    if saved != keras.saving.get_registered_name(type(task)):
        return
    if not _compat.check_file_exists(preset, "task.weights.h5"):
        raise ValueError(
            f"Preset {preset} has no task.weights.h5, the weights of the head. Received: only the "
            f"configuration of the head. {_NEW_HEAD}"
        )


def check_preprocessor_is_saved(preset: str, config_file: str) -> None:
    """Raise a `ValueError` if a preset has a task with a preprocessor, but not `config_file`.

    KerasHub would make a preprocessor with default settings instead.
    """
    if not _compat.check_file_exists(preset, "task.json"):
        return
    of_task = _compat.load_json(preset, "task.json").get("config", {}).get("preprocessor")
    if of_task is not None and not _compat.check_file_exists(preset, config_file):
        raise ValueError(
            f"Preset {preset} has no {config_file}. Received: only task.json, which describes the "
            "preprocessor of a task. Copy or save the preset again, or load the task and use its "
            "`preprocessor`."
        )
