"""Learning rate schedules: those of BERT and of the first Transformer, and accumulated steps."""

import keras
from keras import ops

from keras_diet import validation
from keras_diet.layers.configuration import FromArguments
from keras_diet.types import Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class WarmupLinearDecay(FromArguments, keras.optimizers.schedules.LearningRateSchedule):
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


@keras.saving.register_keras_serializable(package="keras_diet")
class InverseSquareRootDecay(FromArguments, keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly and then falls with the inverse square root of the step.

    Step `s = 0, 1, ...` has the learning rate

        scale * hidden_dim^-0.5 * min((s + 1)^-0.5, (s + 1) * warmup_steps^-1.5)

    Args:
        hidden_dim: int. Size of the hidden states of the model.
        warmup_steps: int. Number of steps up to the largest rate. Defaults to `8000`, as in
            `transformer_base` of Tensor2Tensor. Vaswani et al. use 4000.
        scale: float. Defaults to `2.0`, as in `transformer_base` of Tensor2Tensor. Vaswani et al.
            use 1.
        name: str. Name of the schedule. Defaults to `"InverseSquareRootDecay"`.

    Call arguments:
        step: int or scalar tensor. Number of optimizer steps before this step.

    Returns:
        Scalar float32 tensor with the learning rate.

    Raises:
        ValueError: If an argument is not positive.

    Example:

    ```python
    schedule = keras_diet.training.InverseSquareRootDecay(hidden_dim=512)
    float(schedule(7999))  # 0.000988, the largest rate
    optimizer = keras.optimizers.Adam(schedule, beta_1=0.9, beta_2=0.997, epsilon=1e-9)
    ```

    References:
     - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 5.3
    """

    def __init__(
        self,
        hidden_dim: int,
        warmup_steps: int = 8000,
        scale: float = 2.0,
        name: str = "InverseSquareRootDecay",
    ) -> None:
        super().__init__()
        self.hidden_dim = validation.positive_int("hidden_dim", hidden_dim)
        self.warmup_steps = validation.positive_int("warmup_steps", warmup_steps)
        self.scale = validation.positive_number("scale", scale)
        self.name = name

    def __call__(self, step: int | Tensor) -> Tensor:
        """Return the learning rate of a step."""
        step = ops.cast(step, "float32") + 1
        rate = ops.minimum(step**-0.5, step * self.warmup_steps**-1.5)
        return self.scale * self.hidden_dim**-0.5 * rate


@keras.saving.register_keras_serializable(package="keras_diet")
class AccumulatedSteps(FromArguments, keras.optimizers.schedules.LearningRateSchedule):
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
        self.schedule = schedule
        self.gradient_accumulation_steps = validation.positive_int(
            "gradient_accumulation_steps", gradient_accumulation_steps
        )

    def __call__(self, step: int | Tensor) -> Tensor:
        """Return the learning rate of a batch."""
        return self.schedule(ops.floor_divide(step, self.gradient_accumulation_steps))
