"""Losses with `keras.distribution` on eight simulated devices and on one; a process of its own.

    KERAS_BACKEND=jax XLA_FLAGS=--xla_force_host_platform_device_count=8 \
        python -m tests.distribution.jax_worker RESULTS.json
"""

import contextlib
import functools
import json
import sys
from pathlib import Path
from unittest import mock

import jax
import keras
import numpy as np
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.sharding import NamedSharding, PartitionSpec

from keras_diet.layers.splash_attention import splash_attention
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


def attend_as_on_tpus(distribution, batch_size, num_heads):
    """What the kernel for TPUs makes of heads that lie in parts on the devices.

    Its largest difference from one device's, and whether a device asked others for their parts.
    """
    heads = np.random.default_rng(0).normal(size=(3, batch_size, 128, num_heads, 4))
    heads = heads.astype("float32")
    attend = jax.jit(functools.partial(splash_attention, is_causal=False))
    interpreted = functools.partial(splash.make_splash_mha, interpret=True)
    with mock.patch.object(splash, "make_splash_mha", interpreted):
        expected = attend(*heads)
        parts = PartitionSpec("batch", None, "model")
        if batch_size % 2 or num_heads % 4:
            parts = PartitionSpec()
        mesh = distribution.device_mesh.backend_mesh
        heads = [jax.device_put(tensor, NamedSharding(mesh, parts)) for tensor in heads]
        jax.clear_caches()
        with distribution.scope():
            program = attend.lower(*heads).compile()
            found = program(*heads)
    return {
        "difference": float(np.abs(np.asarray(found) - np.asarray(expected)).max()),
        "devices": len(found.sharding.device_set),
        "part": found.sharding.shard_shape(found.shape),
        "asks": any(word in program.as_text() for word in ("all-gather", "all-to-all")),
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
    results["kernel"] = {
        "divided": attend_as_on_tpus(distribution, batch_size=2, num_heads=4),
        "undivided": attend_as_on_tpus(distribution, batch_size=3, num_heads=3),
    }
    Path(path).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
