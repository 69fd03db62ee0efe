"""BERT's learning rate schedule."""

import keras
from keras import ops

from keras_diet import validation
from keras_diet.types import Config, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly to its peak and then falls linearly to zero.

    With `T = total_steps` and `W = round(warmup_proportion * T)`, at most `T - 1`, step
    `s = 0, 1, ...` has the learning rate

        peak_learning_rate * min((s + 1) / W, (T - s) / (T - W))

    The first step has the rate `peak / W` instead of 0, which would waste the step. The rate
    reaches its peak at the end of the warm-up, and is 0 for `s >= T`. Without warm-up (`W = 0`) it
    only falls.

    Args:
        peak_learning_rate: float. Largest learning rate. The paper pretrains with 0.0018 at
            batch size 4096.
        total_steps: int. Number of optimizer steps in the whole training.
        warmup_proportion: float in [0, 1]. Fraction of `total_steps` for the warm-up. The paper
            uses 0.025 for pretraining and 0.1 for fine-tuning. Defaults to `0.025`.
        name: str. Name of the schedule. Defaults to `"WarmupLinearDecay"`.

    Call arguments:
        step: int or scalar tensor. Number of optimizer steps before this step.

    Returns:
        Scalar float32 tensor with the learning rate.

    Raises:
        ValueError: If an argument is out of range.

    Example:

    ```python
    schedule = keras_diet.training.WarmupLinearDecay(0.0018, total_steps=500_000)
    float(schedule(12_500))  # 0.0018
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.01)
    ```

    References:
     - [Devlin et al., 2019](https://aclanthology.org/N19-1423/), appendix A.2: linear decay
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), table 7: rate and warm-up
    """

    def __init__(
        self,
        peak_learning_rate: float,
        total_steps: int,
        warmup_proportion: float = 0.025,
        name: str = "WarmupLinearDecay",
    ) -> None:
        super().__init__()
        self.peak_learning_rate = validation.positive_number(
            "peak_learning_rate", peak_learning_rate
        )
        self.total_steps = validation.positive_int("total_steps", total_steps)
        self.warmup_proportion = validation.rate("warmup_proportion", warmup_proportion)
        self.name = name
        self.warmup_steps = min(round(warmup_proportion * total_steps), total_steps - 1)

    def __call__(self, step: int | Tensor) -> Tensor:
        """Return the learning rate of a step."""
        step = ops.cast(step, "float32")
        rate = (self.total_steps - step) / (self.total_steps - self.warmup_steps)
        if self.warmup_steps:
            rate = ops.minimum((step + 1) / self.warmup_steps, rate)
        return self.peak_learning_rate * ops.maximum(rate, 0.0)

    def get_config(self) -> Config:
        """Return the arguments of the constructor."""
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "total_steps": self.total_steps,
            "warmup_proportion": self.warmup_proportion,
            "name": self.name,
        }
