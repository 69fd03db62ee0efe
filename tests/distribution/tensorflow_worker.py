"""Losses with `tf.distribute` on two logical CPU devices and on one. Run it as a process:

    KERAS_BACKEND=tensorflow python -m tests.distribution.tensorflow_worker (losses|example) FOLDER

A process has one `MirroredStrategy`. A second one would number its sums over replicas from zero
again, and they would be mixed up.

On TPUs XLA compiles the step of each replica for static shapes. On CPUs Keras's `jit_compile=True`
cannot do this: it compiles all replicas as one program, which may not have variables on two
devices. Here each replica compiles its own step.
"""

import contextlib
import csv
import io
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.distribution.training import (
    BATCH_SIZE,
    ENCODINGS,
    PAIRS,
    eager_steps,
    fit,
    make_batches,
    make_masked_lm,
    prediction_error,
    train_embedder,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "pretrain_masked_lm.py"


def compile_replicas(masked_lm, shapes):
    """Let each replica compute loss and gradients with XLA. Add the input shapes to `shapes`."""

    @tf.function(jit_compile=True)
    def loss_and_gradients(inputs, labels, weights):
        shapes.update(tuple(tensor.shape) for tensor in (*inputs.values(), labels, weights))
        with tf.GradientTape() as tape:
            logits = masked_lm(inputs, training=True)
            loss = masked_lm.compute_loss(y=labels, y_pred=logits, sample_weight=weights)
        return loss, tape.gradient(loss, masked_lm.trainable_weights)

    def step(batch):
        loss, gradients = loss_and_gradients(*batch)
        masked_lm.optimizer.apply(gradients, masked_lm.trainable_weights)
        # Keras has divided the loss by the number of replicas.
        return loss

    @tf.function
    def train_step(batch):
        strategy = masked_lm.distribute_strategy
        return strategy.reduce("SUM", strategy.run(step, (batch,)), axis=None)

    return train_step


def compiled_losses(strategy, position_encoding):
    """Losses with compiled replicas, the input shapes of a replica, the error of `predict`."""
    shapes = set()
    with strategy.scope():
        masked_lm = make_masked_lm(position_encoding)
        masked_lm.optimizer.build(masked_lm.trainable_variables)
        train_step = compile_replicas(masked_lm, shapes)
        losses = []
        for batch in make_batches():
            dataset = tf.data.Dataset.from_tensor_slices(batch).batch(BATCH_SIZE, True)
            for part in strategy.experimental_distribute_dataset(dataset):
                losses.append(float(train_step(part)))
    return losses, sorted(shapes), prediction_error(masked_lm)


def eager_losses(position_encoding):
    """Losses of one device. Nothing is compiled, which is faster for three steps."""
    masked_lm = make_masked_lm(position_encoding)
    masked_lm.run_eagerly = True
    return fit(masked_lm, make_batches())


def train(strategy, position_encoding):
    """Losses of two replicas and of one device."""
    losses, shapes, error = compiled_losses(strategy, position_encoding)
    return {
        "replicas": strategy.num_replicas_in_sync,
        "one": eager_losses(position_encoding),
        "compiled": losses,
        "shapes": shapes,
        "prediction error": error,
    }


def write_full_sentences(path):
    """50 documents. Each sentence fills a sequence of 16 tokens, of which 2 are masked."""
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    rng = np.random.default_rng(0)
    documents = [
        " ".join(" ".join(rng.choice(words, 13)).capitalize() + "." for _ in range(4))
        for _ in range(50)
    ]
    path.write_text("\n\n".join(documents))


def run_example(strategy, folder):
    """The output of the example, and its losses."""
    options = ["--steps", "4", "--validation-interval", "2", "--validation-batches", "2"]
    options += ["--batch-size", "8", "--vocabulary-size", "90", "--sequence-length", "16"]
    options += ["--num-layers", "1", "--num-heads", "2", "--hidden-dim", "16"]
    options += ["--intermediate-dim", "32", "--position-encoding", "diet_abs", "--dropout", "0"]
    options += ["--text", str(folder / "text.txt"), "--output-dir", str(folder / strategy)]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), eager_steps(strategy == "none"):
        sys.path.insert(0, str(EXAMPLE.parent))
        runpy.run_path(str(EXAMPLE))["main"]([*options, "--strategy", strategy])
    with open(folder / strategy / "diet_abs" / "history.csv", newline="") as file:
        losses = [[float(row["loss"]), float(row["val_loss"])] for row in csv.DictReader(file)]
    return {"output": output.getvalue(), "losses": losses}


def compare_losses(folder):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    results = {encoding: train(strategy, encoding) for encoding in ENCODINGS}
    with eager_steps(eager=True):
        results["one"] = {name: train_embedder(name) for name in PAIRS}
    with strategy.scope():
        results["two"] = {name: train_embedder(name) for name in PAIRS}
    return results


def compare_examples(folder):
    write_full_sentences(folder / "text.txt")
    return {strategy: run_example(strategy, folder) for strategy in ("mirrored", "none")}


def main(part, folder):
    folder = Path(folder)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    results = {"losses": compare_losses, "example": compare_examples}[part](folder)
    (folder / f"{part}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
