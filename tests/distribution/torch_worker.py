"""Losses with `DistributedDataParallel`, as one of several processes.

    KERAS_BACKEND=torch python -m tests.distribution.torch_worker diet_abs FOLDER RANK COUNT

The processes meet in `FOLDER`; each writes its losses and weights to `FOLDER/<rank>.npz`.
"""

import importlib.util
import sys
from pathlib import Path

import keras
import numpy as np
import torch

from tests.distribution.training import UNEQUAL, make_batches, make_masked_lm
from tests.helpers import to_numpy
from tests.models.tiny import randomize_weights

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_on_several_gpus.py"


def load_example():
    spec = importlib.util.spec_from_file_location("train_on_several_gpus", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dropout_seeds(example):
    """Seed of dropout in this process, after all processes have the weights of the first."""
    layer = keras.layers.Dropout(0.5, seed=3)
    example.wrap(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1), layer]))
    return to_numpy(layer.seed_generator.state)


def main(position_encoding, folder, rank, count):
    folder = Path(folder)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder / 'meeting'}", rank=int(rank), world_size=int(count)
    )
    example = load_example()
    masked_lm = make_masked_lm(position_encoding)
    if int(rank):
        # What the first process has, must win.
        randomize_weights(masked_lm, seed=int(rank))
    parallel_model = example.wrap(masked_lm)
    optimizer = torch.optim.SGD(masked_lm.parameters(), lr=0.05, momentum=0.9)
    losses = [
        example.train_step(parallel_model, optimizer, batch) for batch in make_batches(UNEQUAL)
    ]
    weights = {weight.path: to_numpy(weight) for weight in masked_lm.weights}
    np.savez(folder / f"{rank}.npz", losses=losses, seeds=dropout_seeds(example), **weights)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
