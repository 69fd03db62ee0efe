"""TensorFlow: two replicas of `tf.distribute` train like one device."""

import argparse
import importlib
import json
import types

import keras
import numpy as np
import pytest

from tests.distribution.conftest import ROOT, finish, start_worker
from tests.distribution.training import BATCH_SIZE, ENCODINGS, LENGTH
from tests.helpers import assert_close

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="tf.distribute needs TensorFlow"
)


@pytest.fixture(scope="module")
def all_results(tmp_path_factory):
    folder, parts = tmp_path_factory.mktemp("distribution"), ("losses", "example")
    finish(*(start_worker("distribution.tensorflow_worker", part, folder) for part in parts))
    return {part: json.loads((folder / f"{part}.json").read_text()) for part in parts}


@pytest.fixture(params=ENCODINGS)
def results(request, all_results):
    return all_results["losses"][request.param]


def test_losses_equal_the_losses_of_one_device(results):
    assert results["replicas"] == 2
    assert len(np.unique(results["one"])) == 3
    assert_close(results["compiled"], results["one"], 1e-4)
    assert results["prediction error"] < 1e-5


def test_pairs_of_other_replicas_are_negatives(all_results):
    for name, expected in all_results["losses"]["one"].items():
        assert_close(all_results["losses"]["two"][name], expected, 1e-4)


def test_replicas_are_compiled_for_static_shapes(results):
    """XLA compiled one program for a replica. It knows all shapes, and half of the batch."""
    half = BATCH_SIZE // 2
    assert results["shapes"] == [[half, 3], [half, LENGTH]]


def test_example_trains_with_a_strategy(all_results):
    """Its losses equal the losses of one device, because all replicas have equally long sequences.

    With other sequences they would differ: Keras averages the means of the replicas.
    """
    mirrored, none = (all_results["example"][strategy] for strategy in ("mirrored", "none"))
    devices = "2 devices, 4 sequences on each"
    assert (devices in mirrored["output"], devices in none["output"]) == (True, False)
    assert np.shape(none["losses"]) == (2, 2)
    assert_close(np.array(mirrored["losses"]), np.array(none["losses"]), 1e-5)


def test_examples_connect_to_a_named_tpu(monkeypatch):
    """Stand-ins replace TensorFlow's functions, because no TPU is here."""
    import tensorflow as tf

    begun = []
    resolvers, experimental = tf.distribute.cluster_resolver, tf.tpu.experimental
    monkeypatch.setattr(resolvers, "TPUClusterResolver", lambda tpu: f"resolver of {tpu}")
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", begun.append)
    monkeypatch.setattr(experimental, "initialize_tpu_system", begun.append)
    monkeypatch.setattr(
        tf.distribute,
        "TPUStrategy",
        lambda resolver: types.SimpleNamespace(num_replicas_in_sync=8, resolver=resolver),
    )
    monkeypatch.setenv("TPU_NAME", "my-tpu")
    monkeypatch.syspath_prepend(ROOT / "examples")
    make_strategy = importlib.import_module("common").make_strategy

    strategy = make_strategy(argparse.Namespace(strategy="tpu", batch_size=16))
    assert [strategy.resolver, *begun] == ["resolver of my-tpu"] * 3
    with pytest.raises(SystemExit, match="multiple of the number of devices, 8"):
        make_strategy(argparse.Namespace(strategy="tpu", batch_size=12))
