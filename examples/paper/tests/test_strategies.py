"""Experiments with `--strategy`, on TensorFlow."""

import argparse
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import keras
import numpy as np
import pytest

from examples.paper.common import make_strategy
from tests.helpers import assert_close

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="tf.distribute needs TensorFlow"
)


def test_losses_of_two_devices_equal_the_losses_of_one(tmp_path):
    """All replicas have equally long sequences.

    With other sequences the losses would differ: Keras averages the means of the replicas.
    """
    command = [sys.executable, "-m", "examples.paper.tests.strategy_worker", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=environment, check=True)
    results = json.loads((tmp_path / "example.json").read_text())
    mirrored, none = (results[strategy] for strategy in ("mirrored", "none"))
    devices = "2 devices, 4 sequences on each"
    assert (devices in mirrored["output"], devices in none["output"]) == (True, False)
    assert np.shape(none["losses"]) == (2, 2)
    assert_close(np.array(mirrored["losses"]), np.array(none["losses"]), 1e-5)


def test_experiments_connect_to_a_named_tpu(monkeypatch):
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

    strategy = make_strategy(argparse.Namespace(strategy="tpu", batch_size=16))
    assert [strategy.resolver, *begun] == ["resolver of my-tpu"] * 3
    with pytest.raises(SystemExit, match="multiple of the number of devices, 8"):
        make_strategy(argparse.Namespace(strategy="tpu", batch_size=12))
