"""Losses with `DistributedDataParallel`. `torchrun` starts two of these processes:

    KERAS_BACKEND=torch torchrun --nproc-per-node 2 -m tests.distribution.torch_worker FOLDER

Each process writes its losses and weights to `FOLDER/<rank>.npz`. Then it runs the
example, which prints its losses.
"""

import gc
import importlib.util
import os
import sys
from pathlib import Path
from unittest import mock

import keras
import numpy as np
import torch

from tests.distribution import resume_worker
from tests.distribution.training import (
    PAIRS,
    STEPS,
    UNEQUAL,
    make_batches,
    make_embedder,
    make_masked_lm,
    pair_batch,
)
from tests.helpers import to_numpy
from tests.models.tiny import randomize_weights

EXAMPLE = Path(__file__).parents[2] / "examples" / "several_devices.py"


def load_example():
    spec = importlib.util.spec_from_file_location("several_devices", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dropout_seeds(example):
    """Seed of dropout in this process, after all processes have the weights of the first."""
    layer = keras.layers.Dropout(0.5, seed=3)
    example.wrap(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1), layer]))
    return to_numpy(layer.seed_generator.state)


def train(example, path, rank):
    masked_lm = make_masked_lm()
    if rank:
        # The weights of the first process must replace these.
        randomize_weights(masked_lm, seed=rank)
    parallel_model = example.wrap(masked_lm)
    optimizer = torch.optim.SGD(masked_lm.parameters(), lr=0.05, momentum=0.9)
    losses = [
        example.train_step(parallel_model, optimizer, batch) for batch in make_batches(UNEQUAL)
    ]
    weights = {weight.path: to_numpy(weight) for weight in masked_lm.weights}
    np.savez(path, losses=losses, seeds=dropout_seeds(example), **weights)


def train_pairs(example, name, path):
    """Three steps on half of the pairs. The loss is of all pairs, but of the half in `evaluate`."""
    embedder = make_embedder(name)
    parallel_model = example.wrap(embedder)
    optimizer = torch.optim.SGD(embedder.parameters(), lr=0.05)
    losses = []
    for _ in range(STEPS):
        x, y, weights = keras.tree.map_structure(example.part_of_process, pair_batch(name))
        loss = embedder.loss(y, parallel_model(x, training=True), weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    losses.append(embedder.evaluate(x, y, sample_weight=weights, verbose=0))
    weights = {weight.path: to_numpy(weight) for weight in embedder.weights}
    np.savez(path, losses=losses, **weights)


def destroy_without_models(destroy=torch.distributed.destroy_process_group):
    """Destroy the group. No model may hold it then: it could wait for gloo's threads forever."""
    parallel = torch.nn.parallel.DistributedDataParallel
    assert not any(isinstance(thing, parallel) for thing in gc.get_objects())
    destroy()


def main(folder):
    folder, rank = Path(folder), int(os.environ["RANK"])
    # The processes meet in the folder. Only one group, the example's, can meet by `torchrun`.
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=2
    )
    example = load_example()
    train(example, folder / f"{rank}.npz", rank)
    for name in PAIRS:
        train_pairs(example, name, folder / f"{rank}-{name}.npz")
    resume_worker.main(folder)
    gc.collect()
    torch.distributed.destroy_process_group()
    with mock.patch.object(torch.distributed, "destroy_process_group", destroy_without_models):
        example.main(steps=7, learning_rate=0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
