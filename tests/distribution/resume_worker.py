"""A training on several devices or processes that crashes and resumes. The workers run it.

TensorFlow has a strategy of two logical devices, JAX a mesh of four simulated ones. `torchrun`
starts two processes of PyTorch, whose `DistributedDataParallel` averages gradients. They have other
data and drop other units. Each process writes the results of a training without and with crashes to
a folder.
"""

import os
import time

import keras
import numpy as np

from keras_diet.training.checkpoint import CheckpointFolder
from keras_diet.training.trainers import Processes
from tests.training.resumed import BATCH_SIZE, make_arrays, make_model, result, train


def training_on_tensorflow(strategy):
    def make():
        with strategy.scope():
            return make_model()

    x, y = make_arrays()
    return make, {"x": x[:48], "y": y[:48], "batch_size": 6}


def training_on_jax():
    devices = keras.distribution.list_devices()
    mesh = keras.distribution.DeviceMesh((2, 2), ("batch", "model"), devices[:4])
    layout_map = keras.distribution.LayoutMap(mesh)
    layout_map["dense.*/kernel"] = (None, "model")
    keras.distribution.set_distribution(
        keras.distribution.ModelParallel(layout_map=layout_map, batch_dim_name="batch")
    )

    def make():
        model = make_model(units=12, outputs=4)
        assert "model" in str(model.layers[0].kernel.value.sharding)
        return model

    x, y = make_arrays()
    # Devices can only share what they can divide.
    return make, {"x": x[:48], "y": np.pad(y, ((0, 0), (0, 1)))[:48], "batch_size": 6}


def training_on_torch():
    import torch

    rank = int(os.environ["RANK"])
    # The models hold no reference to what wraps them, because it holds them.
    wrapped = {}

    class Parallel(keras.Sequential):
        """Averages the gradients of all processes before each step of the optimizer."""

        def train_step(self, data):
            x, y = data
            self.zero_grad()
            loss = self.compute_loss(x, y, wrapped[id(self)](x, training=True), training=True)
            loss.backward()
            variables = self.trainable_variables
            with torch.no_grad():
                self.optimizer.apply([each.value.grad for each in variables], variables)
            mean_loss = self.metrics[0]
            mean_loss.update_state(loss)
            return {"loss": mean_loss.result()}

    def make():
        model = make_model(model_class=Parallel)
        # Building a functional model again registers its weights with PyTorch.
        model.build(model.input_shape)
        wrapped[id(model)] = torch.nn.parallel.DistributedDataParallel(model)
        # Each process drops other units, and has another state of PyTorch's generator.
        torch.manual_seed(rank)
        return model

    write_slowly(step=6)
    x, y = make_arrays()
    return make, {"x": x[rank::2], "y": y[rank::2], "batch_size": BATCH_SIZE}


def write_slowly(step):
    """Let the first process write a checkpoint while the other one already starts again."""
    write = CheckpointFolder.write

    def slow(folder, total, states, arrays):
        time.sleep(0.5 if total == step else 0)
        write(folder, total, states, arrays)

    CheckpointFolder.write = slow


def main(folder, *strategy):
    """Train in the group of processes that exists, or with a strategy of TensorFlow."""
    backend = keras.config.backend()
    make, options = {
        "tensorflow": training_on_tensorflow,
        "jax": training_on_jax,
        "torch": training_on_torch,
    }[backend](*strategy)
    rank = os.environ.get("RANK", "0")
    expected = result(*train(folder / "once", model=make(), **options))
    # Made before the crashes, because the processes wait for each other when a model is wrapped.
    models = [make() for _ in range(3)]
    for steps in (4, 3):
        assert train(folder / "crashed", steps, model=models.pop(), **options) is None
    found = result(*train(folder / "crashed", model=models.pop(), **options))
    # TensorFlow may write into what a dataset returns.
    x, y = make_arrays()
    assert np.isin(options["x"], x).all()
    assert np.isin(options["y"], np.append(y, 0)).all()
    np.savez(folder / f"once_{rank}.npz", **expected)
    np.savez(folder / f"crashed_{rank}.npz", **found)
    devices = {"tensorflow": "2 replicas", "jax": "ModelParallel on a mesh of (2, 2)"}
    assert Processes(make()).devices == devices.get(backend, "one")
