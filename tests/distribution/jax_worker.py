"""Losses with `keras.distribution` on eight simulated devices and on one; a process of its own.

    KERAS_BACKEND=jax XLA_FLAGS=--xla_force_host_platform_device_count=8 \
        python -m tests.distribution.jax_worker RESULTS.json
"""

import contextlib
import json
import sys
from pathlib import Path

import jax
import keras

from keras_diet.models import DietBertBackbone
from tests.distribution.training import ENCODINGS, UNEQUAL, fit, make_batches, make_masked_lm


def model_parallel():
    """Two groups of four devices: half of the batch each, and a quarter of the weights."""
    mesh = keras.distribution.DeviceMesh(
        (2, 4), ("batch", "model"), keras.distribution.list_devices()
    )
    return keras.distribution.ModelParallel(
        layout_map=DietBertBackbone.get_layout_map(mesh), batch_dim_name="batch"
    )


def shards(variables):
    """Shape of the part that one device holds, by the path of a variable."""
    return {
        variable.path: variable.value.sharding.shard_shape(variable.value.shape)
        for variable in variables
    }


def train(distribution, position_encoding):
    """Losses, and the shapes of weights and optimizer state on a device after training."""
    with distribution.scope() if distribution else contextlib.nullcontext():
        masked_lm = make_masked_lm(position_encoding)
        losses = fit(masked_lm, make_batches(UNEQUAL))
    return {
        "losses": losses,
        "devices": len(masked_lm.weights[0].value.sharding.device_set),
        "weights": shards(masked_lm.weights),
        "optimizer": shards(masked_lm.optimizer.variables),
    }


def main(path):
    jax.config.update("jax_disable_most_optimizations", True)
    distribution = model_parallel()
    results = {
        position_encoding: {
            "one": train(None, position_encoding),
            "model": train(distribution, position_encoding),
        }
        for position_encoding in ENCODINGS
    }
    # It knows nothing of weights, so one encoding is like the others.
    results["diet_abs"]["data"] = train(keras.distribution.DataParallel(), "diet_abs")
    Path(path).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
