"""PyTorch: two processes with `DistributedDataParallel` train like one process."""

import operator
import re

import keras
import numpy as np
import pytest

from tests.distribution.conftest import check_resumed, finish, start_worker, values
from tests.distribution.training import (
    PAIRS,
    STEPS,
    UNEQUAL,
    fit,
    make_batches,
    make_embedder,
    make_masked_lm,
    pair_batch,
)
from tests.helpers import assert_close, to_numpy

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="DistributedDataParallel needs PyTorch"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder with the files of both processes, and their output."""
    folder = tmp_path_factory.mktemp("distribution")
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    return folder, finish(start_worker("distribution.torch_worker", folder, launcher=torchrun))


@pytest.fixture(scope="module")
def results(run):
    """Losses and weights of `fit` in this process, and of both processes."""
    masked_lm = make_masked_lm()
    one = {"losses": fit(masked_lm, make_batches(UNEQUAL))}
    one.update({weight.path: to_numpy(weight) for weight in masked_lm.weights})
    return one, *(values(run[0] / f"{rank}.npz") for rank in range(2))


def test_losses_equal_the_losses_of_one_process(results):
    """Although the processes have different numbers of masked tokens."""
    one, *processes = results
    assert len(np.unique(one["losses"])) == 3
    for process in processes:
        assert_close(process["losses"], one["losses"], 1e-4)


def test_weights_equal_the_weights_of_one_process(results):
    """The second process started with other weights and trained on other data than the first."""
    one, first, second = results
    assert {*one, "seeds"} == set(first) == set(second)
    for name in one:
        np.testing.assert_array_equal(first[name], second[name])
        assert_close(first[name], one[name], 1e-4)


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_other_processes_are_negatives(run, name):
    embedder = make_embedder(name)
    losses = [embedder.train_on_batch(*pair_batch(name)) for _ in range(STEPS)]
    assert len(np.unique(losses)) == STEPS
    for rank in range(2):
        found = values(run[0] / f"{rank}-{name}.npz")
        half = operator.itemgetter(slice(4 * rank, 4 * rank + 4))
        x, y, weights = keras.tree.map_structure(half, pair_batch(name))
        own = embedder.evaluate(x, y, sample_weight=weights, verbose=0)
        assert_close(found["losses"], [*losses, own], 1e-4)
        for weight in embedder.weights:
            assert_close(found[weight.path], to_numpy(weight), 1e-4)


def test_processes_drop_differently(results):
    _, first, second = results
    assert first["seeds"].tolist() == [3, 0]
    assert second["seeds"].tolist() == [4, 0]


def test_a_crashed_training_continues_bitwise(run):
    """The processes share weights and have other data."""
    folder = run[0]
    check_resumed(folder, num_processes=2)
    first, second = (values(folder / f"crashed_{rank}.npz") for rank in (0, 1))
    np.testing.assert_array_equal(first["variable 0"], second["variable 0"])
    assert np.all(first["loss"] != second["loss"])


def test_example_runs_with_torchrun(run):
    losses = [float(loss) for loss in re.findall(r"step \d+: loss (\S+)", run[1])]
    assert len(losses) == 7
    assert losses[-1] < losses[0]
