"""Losses with `keras.distribution` on eight simulated devices and on one. Run it as a process:

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

from keras_diet.layers.attention.splash_attention import splash_attention
from keras_diet.models import (
    DietBertBackbone,
    DietTransformerBackbone,
    DietTransformerSeq2SeqLM,
)
from tests.distribution.training import (
    ENCODINGS,
    SIZES,
    UNEQUAL,
    fit,
    make_batches,
    make_masked_lm,
)
from tests.models.diet_transformer import tiny as translation


def model_parallel(cls=DietBertBackbone):
    """Two groups of four devices. A group has half of the batch, a device a quarter of weights."""
    mesh = keras.distribution.DeviceMesh(
        (2, 4), ("batch", "model"), keras.distribution.list_devices()
    )
    return keras.distribution.ModelParallel(
        layout_map=cls.get_layout_map(mesh), batch_dim_name="batch"
    )


def shards(variables):
    """Shape of the part of each variable that one device holds, by the path of the variable."""
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


def train_translator(distribution):
    """Losses, the shapes of weights on a device, and translations after training."""
    with distribution.scope() if distribution else contextlib.nullcontext():
        backbone = DietTransformerBackbone(**SIZES, num_layers=1)
        translator = DietTransformerSeq2SeqLM(backbone, compile=False)
        translation.with_random_weights(translator)
        translator.compile(keras.optimizers.SGD(0.05, momentum=0.9), sampler="greedy")
        inputs = translation.random_inputs(np.random.default_rng(29), 8, 13, 9)
        batch = (inputs, inputs["decoder_token_ids"], inputs["decoder_padding_mask"])
        losses = fit(translator, [batch] * 3)
        outputs = translator.generate(translation.prompts(inputs), stop_token_ids=None)
    return {
        "losses": losses,
        "devices": len(translator.weights[0].value.sharding.device_set),
        "weights": shards(translator.weights),
        "tokens": outputs["decoder_token_ids"].tolist(),
    }


COLLECTIVES = ("all-gather", "all-to-all", "all-reduce", "collective-permute")


def attend_as_on_tpus(distribution, batch_size=2, num_heads=4, parts=("batch", None, "model")):
    """Call the kernel for TPUs with heads that are split over the devices.

    Returns the largest difference between its outputs and gradients and the results of one device,
    the shape of the outputs on one device, and whether devices exchanged data.
    """
    # 150 queries and keys are padded.
    heads = np.random.default_rng(0).normal(size=(3, batch_size, 150, num_heads, 4))
    heads = heads.astype("float32")
    terms = {"bias": None, "scale": 0.5, "is_causal": True}

    def attend(*heads):
        return splash_attention(*heads, **terms)

    def total(*heads):
        output = attend(*heads)
        return (output**2).sum(), output

    with_gradients = jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True)
    interpreted = functools.partial(splash.make_splash_mha, interpret=True)
    with mock.patch.object(splash, "make_splash_mha", interpreted):
        expected = jax.jit(with_gradients)(*heads)
        mesh = distribution.device_mesh.backend_mesh
        sharding = NamedSharding(mesh, PartitionSpec(*parts))
        heads = [jax.device_put(tensor, sharding) for tensor in heads]
        jax.clear_caches()
        with distribution.scope():
            program = jax.jit(attend).lower(*heads).compile()
            found = jax.jit(with_gradients)(*heads)
    pairs = zip(
        jax.tree.leaves(found[0][1:] + found[1]), expected[0][1:] + expected[1], strict=True
    )
    output = found[0][1]
    return {
        "difference": max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs),
        "devices": len(output.sharding.device_set),
        "part": output.sharding.shard_shape(output.shape),
        "asks": any(word in program.as_text() for word in COLLECTIVES),
    }


def three_axes():
    """A mesh with an axis of size 1 before the axis of the heads."""
    mesh = keras.distribution.DeviceMesh(
        (2, 1, 4), ("rows", "stage", "heads"), keras.distribution.list_devices()
    )
    layout_map = DietBertBackbone.get_layout_map(mesh, "heads", "rows")
    return keras.distribution.ModelParallel(layout_map=layout_map, batch_dim_name="rows")


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
    # Data parallelism does not look at weights, so one encoding is enough.
    results["diet_abs"]["data"] = train(keras.distribution.DataParallel(), "diet_abs")
    results["translation"] = {
        "one": train_translator(None),
        "model": train_translator(model_parallel(DietTransformerBackbone)),
    }
    results["kernel"] = {
        "model": attend_as_on_tpus(distribution),
        "three": attend_as_on_tpus(three_axes(), parts=("rows", None, "heads")),
        "data": attend_as_on_tpus(
            keras.distribution.DataParallel(), batch_size=8, parts=("batch",)
        ),
        "undivided": attend_as_on_tpus(distribution, batch_size=3, num_heads=3, parts=()),
    }
    Path(path).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
