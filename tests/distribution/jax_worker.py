"""Losses with `keras.distribution` on eight simulated devices and on one. Run it as a process:

    KERAS_BACKEND=jax XLA_FLAGS=--xla_force_host_platform_device_count=8 \
        python -m tests.distribution.jax_worker RESULTS.json
"""

import contextlib
import json
import sys
from pathlib import Path

import jax
import keras
import numpy as np

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
    prediction_error,
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
    """Losses, the error of `predict`, and the shapes of weights on a device after training."""
    with distribution.scope() if distribution else contextlib.nullcontext():
        masked_lm = make_masked_lm(position_encoding)
        losses = fit(masked_lm, make_batches(UNEQUAL))
        error = prediction_error(masked_lm)
    return {
        "losses": losses,
        "prediction error": error,
        "devices": len(masked_lm.weights[0].value.sharding.device_set),
        "weights": shards(masked_lm.weights),
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
    Path(path).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
