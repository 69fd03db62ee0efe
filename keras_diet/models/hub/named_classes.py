"""How tasks with `class_names` are loaded."""

import os
from typing import Any, Self

from keras_diet.models.hub.task import HubTask
from keras_diet.types import Config


class NamedClasses(HubTask):
    """A mixin for a task with the arguments `num_classes` and `class_names`."""

    num_classes: int
    class_names: list[str] | None

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        config = super().get_config()
        config.update(
            {
                # With names, a number would say that a new head is wanted.
                "num_classes": None if self.class_names else self.num_classes,
                "class_names": list(self.class_names) if self.class_names else None,
            }
        )
        return config

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Build the model from `get_config`.

        If KerasHub loads a preset with another `num_classes`, the names of its classes are dropped.
        """
        number, names = config.get("num_classes"), config.get("class_names")
        if number is not None and names is not None and number != len(names):
            config = {**config, "class_names": None}
        return super().from_config(config)

    @classmethod
    def from_preset(
        cls, preset: str | os.PathLike[str], load_weights: bool = True, **kwargs: Any
    ) -> Self:
        """Load the classifier from a preset, as `HubTask.from_preset`.

        With `num_classes`, the head is new and has no names of classes, unless `class_names` are
        given too.
        """
        if "num_classes" in kwargs:
            kwargs.setdefault("class_names", None)
        task = super().from_preset(preset, load_weights, **kwargs)
        names = kwargs.get("class_names")
        if names is not None and task.class_names is None:
            raise ValueError(
                "`class_names` must hold one name for each class of the preset. Received: "
                f"{len(names)} names for {task.num_classes} classes. For a new head, pass "
                f"num_classes={len(names)} too."
            )
        return task

    def load_task_weights(self, filepath: str | os.PathLike[str]) -> None:
        """Load the weights of the head. The optimizer does not change."""
        try:
            super().load_task_weights(filepath)
        except ValueError as error:
            if self.class_names is None:
                raise
            number = len(self.class_names)
            raise ValueError(
                f"{error} The head has {number} names in `class_names`. If the file has another "
                f"number of classes: For a new head, pass num_classes={number} too."
            ) from error
