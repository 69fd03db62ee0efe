"""TensorFlow: two replicas of `tf.distribute` train like one device."""

import json

import keras
import numpy as np
import pytest

from tests.distribution.conftest import check_resumed, finish, start_worker
from tests.helpers import assert_close

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="tf.distribute needs TensorFlow"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distribution")
    finish(start_worker("distribution.tensorflow_worker", folder))
    return folder


@pytest.fixture(scope="module")
def results(folder):
    return json.loads((folder / "losses.json").read_text())


@pytest.mark.parametrize("name", ["losses", "predictions", "embedder"])
def test_two_replicas_train_and_predict_as_one_device(results, name):
    """Pairs of the other replica are negatives of an embedder, too."""
    assert results["replicas"] == 2
    assert len(np.unique(results["one"]["losses"])) == 3
    assert_close(results["two"][name], results["one"][name], 1e-4)


def test_a_crashed_training_continues_bitwise(folder):
    check_resumed(folder)
