"""Copies of a model that train at the same time, in one program (JAX only).

Small models leave most of a GPU idle. `jax.vmap` gives each variable another axis, for the copies.
They have one structure and one optimizer, and differ in their values and their data.
"""

from collections.abc import Sequence
from typing import Any

import jax
import keras
import numpy as np

# A batch, or batches with more axes in front.
Batches = Any


class Copies:
    """Trains copies of a compiled model.

    Args:
        model: Built and compiled `keras.Model` without copies yet.
        batch: A batch as for `train_on_batch`. It only has to have the right shapes.
    """

    def __init__(self, model: keras.Model, batch: tuple) -> None:
        self.model = model
        model.optimizer.build(model.trainable_variables)
        # This makes the variables of the metrics, and compiles nothing.
        model._symbolic_build(data_batch=batch)
        self.values: list[list[list[np.ndarray]]] = []
        self.data: list[int] = []
        self.state: list[list[Any]] = []
        self.train_steps = jax.jit(self.scan_training, donate_argnums=0)
        self.test_steps = jax.jit(self.scan_test)
        self.predict_steps = jax.jit(self.scan_prediction)

    def add(self, model: keras.Model, data: int) -> None:
        """Add a copy with the values of a model of the same structure.

        Args:
            model: The model with the values.
            data: The copy sees the batches with this index, of those for `fit` and `evaluate`.
        """
        parts = (model.trainable_variables, model.non_trainable_variables)
        self.values.append(
            [[keras.ops.convert_to_numpy(variable) for variable in part] for part in parts]
        )
        self.data.append(data)

    def start(self) -> None:
        """Put the values of all copies, and new optimizer states, on the device."""
        trainable, others = zip(*self.values, strict=True)
        optimizer = [
            keras.ops.convert_to_numpy(variable) for variable in self.model.optimizer.variables
        ]
        parts = (trainable, others, [optimizer] * len(trainable))
        state = [list(map(np.stack, zip(*part, strict=True))) for part in parts]
        # Only what depends on it is computed on this device.
        self.state = jax.device_put(state, jax.devices()[0])

    def fit(self, batches: Batches) -> None:
        """Train with batches, whose arrays have the shape `(steps, data, batch_size, ...)`."""
        self.state = self.train_steps(self.state, batches)

    def evaluate(self, batches: Batches) -> dict[str, list[float]]:
        """Return the loss and metrics of each copy, for batches as in `fit`."""
        logs = self.test_steps(self.state[:2], batches)
        return {name: np.asarray(values).tolist() for name, values in logs.items()}

    def predict(self, inputs: Any) -> np.ndarray:
        """Return the outputs of shape `(copies, examples, ...)`.

        Args:
            inputs: Arrays of shape `(steps, batch_size, ...)`, the same for all copies.
        """
        outputs = np.asarray(self.predict_steps(self.state[:2], inputs))
        return outputs.swapaxes(0, 1).reshape(len(self.data), -1, *outputs.shape[3:])

    def assign(self, index: int, model: keras.Model) -> None:
        """Give the values of a copy to a model of the same structure."""
        parts = (model.trainable_variables, model.non_trainable_variables)
        for variables, values in zip(parts, self.state, strict=False):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(np.asarray(value)[index])

    # === Functions that are compiled ===

    def of_copies(self, batch: Batches) -> Batches:
        """Return the batch of each copy."""
        return jax.tree.map(lambda array: array[np.array(self.data)], batch)

    def new_metrics(self) -> list[Any]:
        """Return metrics of all copies that have seen nothing."""
        shapes = ((len(self.data), *each.shape) for each in self.model.metrics_variables)
        return list(map(jax.numpy.zeros, shapes))

    def scan_training(self, state: Any, batches: Batches) -> Any:
        def step(state, batch):
            state = (*state, self.new_metrics())
            _, (*state, _) = jax.vmap(self.model.train_step)(state, self.of_copies(batch))
            return state, None

        return jax.lax.scan(step, state, batches)[0]

    def scan_test(self, state: Any, batches: Batches) -> dict[str, Any]:
        def step(metrics, batch):
            values = (*state, metrics)
            logs, (*_, metrics) = jax.vmap(self.model.test_step)(values, self.of_copies(batch))
            return metrics, logs

        logs = jax.lax.scan(step, self.new_metrics(), batches)[1]
        # Each step has the mean up to this step.
        return {name: values[-1] for name, values in logs.items()}

    def scan_prediction(self, state: Any, inputs: Any) -> Any:
        def step(_, batch):
            outputs, _ = jax.vmap(self.model.predict_step, in_axes=(0, None))(
                tuple(state), (batch,)
            )
            return None, outputs

        return jax.lax.scan(step, None, inputs)[1]


def stack(batches: Sequence[Any]) -> Any:
    """Return a batch with one more axis, for the batches."""
    return jax.tree.map(lambda *arrays: np.stack(arrays), *batches)
