"""Losses with `tf.distribute` on two logical CPU devices and on one. Run it as a process:

    KERAS_BACKEND=tensorflow python -m tests.distribution.tensorflow_worker FOLDER

A process has one `MirroredStrategy`. A second one would number its sums over replicas from zero
again, and they would be mixed up.
"""

import contextlib
import json
import sys
from pathlib import Path
from unittest import mock

import keras
import tensorflow as tf

from tests.distribution import resume_worker
from tests.distribution.training import (
    fit,
    make_batches,
    make_masked_lm,
    predictions,
    train_embedder,
)
from tests.helpers import EAGER


def trained(scope):
    """Losses, predictions after them, and the losses of an embedder, which reads other pairs."""
    with scope:
        masked_lm = make_masked_lm()
        losses = fit(masked_lm, make_batches())
        embedder = train_embedder()
    return {"losses": losses, "predictions": predictions(masked_lm), "embedder": embedder}


def main(folder):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    results = {"replicas": strategy.num_replicas_in_sync, "two": trained(strategy.scope())}
    # One device needs no compiler for three steps.
    with mock.patch.object(keras.Model, "run_eagerly", EAGER):
        results["one"] = trained(contextlib.nullcontext())
    Path(folder, "losses.json").write_text(json.dumps(results))
    resume_worker.main(Path(folder), strategy)


if __name__ == "__main__":
    main(*sys.argv[1:])
