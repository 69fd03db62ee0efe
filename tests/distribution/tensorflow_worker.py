"""Losses with `tf.distribute` on two logical CPU devices and on one. Run it as a process:

    KERAS_BACKEND=tensorflow python -m tests.distribution.tensorflow_worker FOLDER

A process has one `MirroredStrategy`. A second one would number its sums over replicas from zero
again, and they would be mixed up.

On TPUs XLA compiles the step of each replica for static shapes. On CPUs Keras's `jit_compile=True`
cannot do this: it compiles all replicas as one program, which may not have variables on two
devices. Here each replica compiles its own step.
"""

import json
import sys
from pathlib import Path
from unittest import mock

import keras
import tensorflow as tf

from tests.distribution import resume_worker
from tests.distribution.training import (
    BATCH_SIZE,
    fit,
    make_batches,
    make_masked_lm,
    predictions,
    train_embedder,
)
from tests.helpers import EAGER


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


def train_replicas(strategy):
    """Losses and predictions with compiled replicas, and the input shapes of a replica."""
    shapes = set()
    with strategy.scope():
        masked_lm = make_masked_lm()
        masked_lm.optimizer.build(masked_lm.trainable_variables)
        train_step = compile_replicas(masked_lm, shapes)
        losses = []
        for batch in make_batches():
            dataset = tf.data.Dataset.from_tensor_slices(batch).batch(BATCH_SIZE, True)
            for part in strategy.experimental_distribute_dataset(dataset):
                losses.append(float(train_step(part)))
    return {"losses": losses, "predictions": predictions(masked_lm)}, sorted(shapes)


def compare(strategy):
    two, shapes = train_replicas(strategy)
    with strategy.scope():
        two["embedder"] = train_embedder("multiple_negatives")
    # One device needs no compiler for three steps.
    with mock.patch.object(keras.Model, "run_eagerly", EAGER):
        masked_lm = make_masked_lm()
        one = {"losses": fit(masked_lm, make_batches()), "predictions": predictions(masked_lm)}
        one["embedder"] = train_embedder("multiple_negatives")
    return {"replicas": strategy.num_replicas_in_sync, "shapes": shapes, "one": one, "two": two}


def main(folder):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    Path(folder, "losses.json").write_text(json.dumps(compare(strategy)))
    resume_worker.main(Path(folder), strategy)


if __name__ == "__main__":
    main(*sys.argv[1:])
