"""`ExactResume` on several devices of TensorFlow and JAX, and in two processes of PyTorch."""

import keras
import numpy as np
import pytest

from tests.distribution.conftest import finish, start_worker
from tests.training.resumed import assert_same


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resume")
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    launcher = torchrun if keras.config.backend() == "torch" else ()
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    finish(start_worker("distribution.resume_worker", folder, launcher=launcher, **devices))
    return folder


def values(path):
    with np.load(path) as file:
        return dict(file)


@pytest.mark.skipif(keras.config.backend() != "torch", reason="has one process")
def test_processes_share_weights_and_have_other_data(folder):
    first, second = (values(folder / f"crashed_{rank}.npz") for rank in (0, 1))
    np.testing.assert_array_equal(first["variable 0"], second["variable 0"])
    assert np.all(first["loss"] != second["loss"])


def test_a_crashed_training_continues_bitwise(folder):
    ranks = ("0", "1") if keras.config.backend() == "torch" else ("0",)
    for rank in ranks:
        assert_same(values(folder / f"crashed_{rank}.npz"), values(folder / f"once_{rank}.npz"))
    assert len(list(folder.glob("crashed_*.npz"))) == len(ranks)
    assert len(list((folder / "crashed").glob("step_*.npz"))) == 2
