"""Losses with `keras.distribution` on eight simulated devices and on one. Run it as a process:

    KERAS_BACKEND=jax XLA_FLAGS=--xla_force_host_platform_device_count=8 \
        python -m tests.distribution.jax_worker FOLDER
"""

import contextlib
import functools
import json
import shutil
import sys
import tempfile
from pathlib import Path
from unittest import mock

import jax
import keras
import numpy as np

from keras_diet.models import (
    DietBertBackbone,
    DietTransformerBackbone,
    DietTransformerSeq2SeqLM,
)
from keras_diet.training import ExactResume
from keras_diet.training.trainers import whole_batches
from tests.distribution import resume_worker
from tests.distribution.training import (
    SIZES,
    UNEQUAL,
    fit,
    make_batches,
    make_masked_lm,
    predictions,
    train_embedder,
)
from tests.models.diet_transformer import tiny as translation
from tests.models.tasks import tiny_task
from tests.models.tiny import TEXTS, draw_with_numpy, randomize_weights


def model_parallel(cls=DietBertBackbone):
    """Two groups of four devices. A group has half of the batch, a device a quarter of weights."""
    mesh = keras.distribution.DeviceMesh(
        (4, 2), ("model", "batch"), keras.distribution.list_devices()
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


def train(distribution):
    """Losses and, after training, predictions and the shapes of weights on a device.

    XLA adds the losses of pairs over devices. No loss of an embedder does.
    """
    with distribution.scope() if distribution else contextlib.nullcontext():
        masked_lm = make_masked_lm()
        losses = fit(masked_lm, make_batches(UNEQUAL))
        outputs = predictions(masked_lm)
        embedder = train_embedder()
    return {
        "embedder": embedder,
        "losses": losses,
        "predictions": outputs,
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
        prompts = translation.prompts(inputs)
        outputs = translator.generate(prompts, stop_token_ids=None)
        three = {name: array[:3] for name, array in prompts.items()}
        three = translator.generate(three, stop_token_ids=None)["decoder_token_ids"].tolist()
    return {
        "losses": losses,
        "devices": len(translator.weights[0].value.sharding.device_set),
        "weights": shards(translator.weights),
        "tokens": outputs["decoder_token_ids"].tolist(),
        "tokens of three": three,
    }


class Rows(keras.utils.PyDataset):
    """Batches of 3 and of 6 texts and labels."""

    num_batches = 2

    def __getitem__(self, index):
        rows = slice(0, 3) if index == 0 else slice(3, 9)
        return ROW_TEXTS[rows], ROW_LABELS[rows]


ROW_TEXTS, ROW_LABELS = (TEXTS * 3)[:11], np.arange(11) * 2 % 7


def watch_rows(task, rows):
    """Append the rows of each compiled batch, and how many of them a device computes."""
    call = task.call

    def watched(*args, **kwargs):
        outputs = call(*args, **kwargs)

        def see(sharding):
            rows.add((outputs.shape[0], sharding.shard_shape(outputs.shape)[0]))

        jax.debug.inspect_array_sharding(outputs, callback=see)
        return outputs

    task.call = watched


def run_classifier(distribution, modes=()):
    """Results with batches of any size, of quantized models, also after loading, and of LoRA."""
    sizes = {"num_layers": 1, "num_heads": 4, "hidden_dim": 24, "intermediate_dim": 20}

    def make():
        keras.utils.set_random_seed(7)
        return randomize_weights(tiny_task("classifier", **sizes))

    results, rows, split = {}, set(), []
    with distribution.scope() if distribution else contextlib.nullcontext():
        task = make()
        task.compile(keras.optimizers.SGD(0.05, momentum=0.9), task.loss, metrics=["accuracy"])
        watch_rows(task, rows)
        results["predict"] = task.predict(ROW_TEXTS, batch_size=8, verbose=0).tolist()
        results["dataset"] = task.predict(Rows(), verbose=0).tolist()
        results["evaluate"] = task.evaluate(ROW_TEXTS, ROW_LABELS, batch_size=8, verbose=0)
        results["test"] = task.test_on_batch(ROW_TEXTS[:3], ROW_LABELS[:3])
        validation = (ROW_TEXTS[:3], ROW_LABELS[:3])
        fit = functools.partial(task.fit, verbose=0, validation_data=validation)
        results["fit"] = fit(ROW_TEXTS, ROW_LABELS, batch_size=8, epochs=2).history
        if distribution and not modes:
            return {"results": results, "rows": sorted(rows), "split": split}
        results["fit dataset"] = fit(Rows()).history
        results["train"] = task.train_on_batch(ROW_TEXTS[:3], ROW_LABELS[:3])
        with tempfile.TemporaryDirectory() as folder:
            resumed = ExactResume(folder, save_every=1)
            history = resumed.fit(task, ROW_TEXTS[:3], ROW_LABELS[:3], verbose=0)
        results["resume"] = history.history
        ids = task.preprocessor(ROW_TEXTS[:6])
        task.preprocessor = None
        results["ids"] = task.fit(ids, ROW_LABELS[:6], batch_size=6, verbose=0).history
        results["weights"] = [weight.tolist() for weight in task.get_weights()]
        for mode in modes:
            task = make()
            task.backbone.enable_lora(2) if mode == "lora" else task.quantize(mode)
            results[mode] = task.predict(ROW_TEXTS[:8], verbose=0).tolist()
            quantized = [weight for weight in task.weights if weight.dtype == "int8"]
            parts = shards(quantized)
            split += [each.path for each in quantized if parts[each.path] != each.shape]
            if mode == "lora":
                continue
            task.save_to_preset(folder)
            loaded = type(task).from_preset(folder)
            results[f"{mode} loaded"] = loaded.predict(ROW_TEXTS[:8], verbose=0).tolist()
            shutil.rmtree(folder)
    return {"results": results, "rows": sorted(rows), "split": split}


def first_axes_of_data():
    """How Keras divides the rows of a batch on one host, and on each of two hosts of a pod."""
    for hosts in (1, 2):
        with (
            keras.distribution.DataParallel().scope(),
            mock.patch.object(jax, "process_count", lambda hosts=hosts: hosts),
            whole_batches(),
        ):
            yield keras.distribution.distribution().get_data_layout((8, 3)).axes[0]


def main(folder):
    jax.config.update("jax_disable_most_optimizations", True)
    data_parallel = keras.distribution.DataParallel()
    results = {"one": train(None), "model": train(model_parallel())}
    results["translation"] = {
        "one": train_translator(None),
        "model": train_translator(model_parallel(DietTransformerBackbone)),
    }
    results["classifier"] = {
        # New adapters change nothing, so LoRA has the results of `predict`.
        "one": run_classifier(None, modes=("int8",)),
        # Data parallelism splits no weights.
        "data": run_classifier(data_parallel),
        "model": run_classifier(model_parallel(), modes=("int8", "lora")),
    }
    results["first axes"] = list(first_axes_of_data())
    Path(folder, "results.json").write_text(json.dumps(results))
    resume_worker.main(Path(folder))


if __name__ == "__main__":
    keras.initializers.TruncatedNormal.__call__ = draw_with_numpy
    main(*sys.argv[1:])
