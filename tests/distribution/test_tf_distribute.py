"""TensorFlow: two replicas of `tf.distribute` train as one device does."""

import json
import re

import keras
import numpy as np
import pytest

from tests.distribution.conftest import finish, start_worker
from tests.distribution.training import BATCH_SIZE, ENCODINGS, LENGTH
from tests.helpers import assert_close

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="tf.distribute is TensorFlow's"
)


@pytest.fixture(scope="module", params=ENCODINGS)
def results(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("distribution") / "results.json"
    finish(start_worker("tensorflow_worker", request.param, path))
    return json.loads(path.read_text())


def test_losses_are_those_of_one_device(results):
    assert results["replicas"] == 2
    assert len(np.unique(results["one"])) == 3
    assert_close(results["compiled"], results["one"], 1e-4)


def test_replicas_are_compiled_for_static_shapes(results):
    """Each shape is known, and half of the batch: XLA compiled one program for a replica."""
    half = BATCH_SIZE // 2
    assert results["shapes"] == [[half, 3], [half, LENGTH]]


def test_example_trains_with_a_strategy(tmp_path):
    options = ["--steps", "4", "--batch-size", "8", "--validation-batches", "2"]
    options += ["--vocabulary-size", "300", "--sequence-length", "16", "--num-layers", "1"]
    options += ["--num-heads", "2", "--hidden-dim", "16", "--intermediate-dim", "32"]
    options += ["--position-encoding", "diet_abs", "--output-dir", str(tmp_path), "--dropout", "0"]
    losses = {}
    for strategy in ("mirrored", "none"):
        output = finish(
            start_worker("example_worker", "--strategy", strategy, "--overwrite", *options)
        )
        assert ("2 devices, 4 sequences on each" in output) == (strategy == "mirrored")
        losses[strategy] = float(re.search(r"diet_abs: (\d+\.\d+)", output)[1])
    # Not the same: replicas differ in their numbers of masked tokens.
    assert losses["mirrored"] == pytest.approx(losses["none"], abs=0.02)
