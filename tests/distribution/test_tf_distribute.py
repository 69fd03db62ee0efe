"""TensorFlow: two replicas of `tf.distribute` train like one device."""

import json

import keras
import numpy as np
import pytest

from tests.distribution.conftest import finish, start_worker
from tests.distribution.training import BATCH_SIZE, ENCODINGS, LENGTH
from tests.helpers import assert_close

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="tf.distribute needs TensorFlow"
)


@pytest.fixture(scope="module")
def all_results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distribution")
    finish(start_worker("distribution.tensorflow_worker", folder))
    return json.loads((folder / "losses.json").read_text())


@pytest.fixture(params=ENCODINGS)
def results(request, all_results):
    return all_results[request.param]


def test_losses_equal_the_losses_of_one_device(results):
    assert results["replicas"] == 2
    assert len(np.unique(results["one"])) == 3
    assert_close(results["compiled"], results["one"], 1e-4)
    assert results["prediction error"] < 1e-5


def test_pairs_of_other_replicas_are_negatives(all_results):
    for name, expected in all_results["one"].items():
        assert_close(all_results["two"][name], expected, 1e-4)


def test_replicas_are_compiled_for_static_shapes(results):
    """XLA compiled one program for a replica. It knows all shapes, and half of the batch."""
    half = BATCH_SIZE // 2
    assert results["shapes"] == [[half, 3], [half, LENGTH]]
