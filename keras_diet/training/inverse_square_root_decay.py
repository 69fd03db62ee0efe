"""The learning rate schedule of the first Transformer."""

import keras
from keras import ops

from keras_diet import validation
from keras_diet.types import Config, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class InverseSquareRootDecay(keras.optimizers.schedules.LearningRateSchedule):
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

    def get_config(self) -> Config:
        """Return the arguments of the constructor."""
        return {
            "hidden_dim": self.hidden_dim,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
            "name": self.name,
        }
