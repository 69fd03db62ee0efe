"""A schedule for optimizers that accumulate gradients."""

from typing import Any, Self

import keras
from keras import ops

from keras_diet import validation
from keras_diet.types import Config, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class AccumulatedSteps(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that gives all batches of an optimizer step the learning rate of this step.

    With `gradient_accumulation_steps=n`, an optimizer of Keras averages the gradients of `n`
    batches and then takes one step. But it asks its schedule for the rate of each batch, so a
    schedule ends after an `n`-th of the training. With this schedule, `n` batches of `B` examples
    train like one batch of `n * B` examples, if the loss is a mean over examples.

    Args:
        schedule: A `keras.optimizers.schedules.LearningRateSchedule`. It counts optimizer steps.
        gradient_accumulation_steps: int. The same number as in the optimizer.

    Call arguments:
        step: int or scalar tensor. Number of batches before this batch.

    Returns:
        Scalar float32 tensor with the learning rate.

    Raises:
        ValueError: If an argument is not a schedule or not a positive integer.

    Example:

    ```python
    schedule = keras_diet.training.WarmupLinearDecay(0.0018, total_steps=1000)
    optimizer = keras.optimizers.AdamW(
        keras_diet.training.AccumulatedSteps(schedule, 4), gradient_accumulation_steps=4
    )
    ```
    """

    def __init__(
        self,
        schedule: keras.optimizers.schedules.LearningRateSchedule,
        gradient_accumulation_steps: int,
    ) -> None:
        super().__init__()
        if not isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
            raise ValueError(
                "`schedule` must be a `keras.optimizers.schedules.LearningRateSchedule`. Received: "
                f"{schedule!r}. A constant learning rate needs no `AccumulatedSteps`."
            )
        self.schedule = schedule
        self.gradient_accumulation_steps = validation.positive_int(
            "gradient_accumulation_steps", gradient_accumulation_steps
        )

    def __call__(self, step: int | Tensor) -> Tensor:
        """Return the learning rate of a batch."""
        return self.schedule(ops.floor_divide(step, self.gradient_accumulation_steps))

    def get_config(self) -> Config:
        """Return the arguments of the constructor."""
        return {
            "schedule": keras.saving.serialize_keras_object(self.schedule),
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Make the schedule from the result of `get_config`."""
        schedule = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(schedule, config["gradient_accumulation_steps"])
