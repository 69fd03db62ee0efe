"""How Keras's trainers run: on several devices, in several processes, and beside a training."""

import contextlib
import copy
from typing import Any

import keras


def num_batch_devices():
    """Return among how many devices `keras.distribution` divides a batch."""
    distribution = keras.distribution.distribution()
    if distribution is None or keras.backend.backend() != "jax":
        return 1
    mesh = distribution.device_mesh
    return mesh.shape[mesh.axis_names.index(distribution.batch_dim_name)]


def divided(batch):
    """Return a batch, divided among the devices if their number divides its rows."""
    number, distribution = num_batch_devices(), keras.distribution.distribution()
    if number == 1:
        return batch

    def divide(array):
        axes = [distribution.batch_dim_name, *[None] * (len(array.shape) - 1)]
        layout = keras.distribution.TensorLayout(axes, distribution.device_mesh)
        return array if len(array) % number else keras.distribution.distribute_tensor(array, layout)

    return keras.tree.map_structure(divide, batch, none_is_leaf=False)


def has_replicas(model):
    """Return whether a strategy of TensorFlow divides batches among several replicas."""
    strategy = getattr(model, "distribute_strategy", None)
    return strategy is not None and strategy.num_replicas_in_sync > 1


def divides_rows(model):
    """Return whether replicas or processes get rows of a batch, each array by itself."""
    if keras.backend.backend() != "jax":
        return has_replicas(model)
    import jax

    return jax.process_count() > 1


@contextlib.contextmanager
def whole_batches():
    """Return a context in which Keras gives whole batches to each device, and steps divide them.

    Keras on JAX divides the batches itself, and fails if the number of devices does not divide the
    rows. On a pod it must do so, because each host has other rows.
    """
    if num_batch_devices() == 1:
        yield
        return
    import jax

    distribution: Any = copy.copy(keras.distribution.distribution())
    if jax.process_count() == 1:
        layout, mesh = keras.distribution.TensorLayout, distribution.device_mesh
        distribution.get_data_layout = lambda shape: layout([None] * len(shape), mesh)
    with distribution.scope():
        yield


def return_weights(models):
    """Let models have their weights, which `fit` on JAX holds between its steps."""
    if keras.backend.backend() == "jax":
        for model in models:
            model.jax_state_sync()


@contextlib.contextmanager
def beside_training(models):
    """Return a context in which Keras reads data without changing the training around it.

    PyTorch's `DataLoader` draws from the generator that dropout uses. On JAX the models have their
    weights before and after, also after an error.
    """
    with whole_batches(), contextlib.ExitStack() as stack:
        if keras.backend.backend() == "torch":
            import torch

            stack.enter_context(torch.random.fork_rng(devices=[]))
        return_weights(models)
        stack.callback(return_weights, models)
        yield


class Processes:
    """The processes of `torch.distributed`, or a single one.

    Args:
        model: The model. Its strategy on TensorFlow must run in one process.

    Attributes:
        rank: int. The number of this process, from 0.
        count: int. The number of processes.
        devices: str. The devices that train together in this process.

    Raises:
        ValueError: If several processes of JAX or TensorFlow train together, or if TensorFlow
            trains on devices of another machine, which cannot read data of Python.
    """

    def __init__(self, model: keras.Model) -> None:
        self.rank, self.count, self.devices = 0, 1, "one"
        backend = keras.config.backend()
        several = False
        if backend == "torch":
            import torch

            if torch.distributed.is_available() and torch.distributed.is_initialized():
                self.rank = torch.distributed.get_rank()
                self.count = torch.distributed.get_world_size()
        elif backend == "jax":
            import jax

            several = jax.process_count() > 1
            distribution = keras.distribution.distribution()
            if distribution is not None:
                mesh = tuple(distribution.device_mesh.shape)
                self.devices = f"{type(distribution).__name__} on a mesh of {mesh}"
        else:
            strategy = model.distribute_strategy
            if strategy.num_replicas_in_sync > 1:
                self.devices = f"{strategy.num_replicas_in_sync} replicas"
            cluster = getattr(strategy, "cluster_resolver", None)
            several = cluster is not None and len(cluster.cluster_spec().jobs) > 0
        if several:
            raise ValueError(
                "`ExactResume` needs a single process on JAX and TensorFlow, which may have "
                f"several devices of its machine. Received: several processes of {backend}, or "
                "devices of another machine. Use the checkpoints of Orbax or `tf.train.Checkpoint`."
            )

    def all(self, value: Any) -> list[Any]:
        """Return the values of all processes. Each waits for the others."""
        if self.count == 1:
            return [value]
        import torch

        values = [None] * self.count
        torch.distributed.all_gather_object(values, value)
        return values
