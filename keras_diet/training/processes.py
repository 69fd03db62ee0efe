"""The processes that train a model together."""

from typing import Any

import keras


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
