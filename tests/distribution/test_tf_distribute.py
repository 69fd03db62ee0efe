"""TensorFlow: two replicas of `tf.distribute` train like one device."""

import json

import keras
import numpy as np
import pytest

from tests.distribution.conftest import check_resumed, finish, start_worker
from tests.distribution.training import BATCH_SIZE, LENGTH
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


@pytest.mark.parametrize("name", ["losses", "predictions"])
def test_two_replicas_train_and_predict_as_one_device(results, name):
    assert results["replicas"] == 2
    assert len(np.unique(results["one"]["losses"])) == 3
    assert_close(results["two"][name], results["one"][name], 1e-4)


def test_pairs_of_other_replicas_are_negatives(results):
    assert_close(results["two"]["embedder"], results["one"]["embedder"], 1e-4)


def test_replicas_are_compiled_for_static_shapes(results):
    """XLA compiled one program for a replica. It knows all shapes, and half of the batch."""
    half = BATCH_SIZE // 2
    assert results["shapes"] == [[half, 3], [half, LENGTH]]


def test_a_crashed_training_continues_bitwise(folder):
    check_resumed(folder)
