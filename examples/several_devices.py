"""Lesson 7: train on several devices.

You learn how to share each batch among the GPUs of a machine, on each backend. TensorFlow has
`tf.distribute`, and JAX `keras.distribution`: `fit` does the rest. PyTorch has one process for each
device, and the training loop below. docs/guides/distribution.md has TPUs and several machines.

    KERAS_BACKEND=jax python examples/several_devices.py
    KERAS_BACKEND=torch torchrun --nproc-per-node 8 examples/several_devices.py
"""

import sys

if "--help" in sys.argv:  # before the imports, which take seconds
    sys.exit(print(__doc__))

import os

import keras
import numpy as np

from keras_diet import models, pretraining

if keras.config.backend() == "tensorflow":
    import tensorflow as tf
elif keras.config.backend() == "torch":
    import torch

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "three", "ran", "sat"]
LENGTH, BATCH_SIZE = 16, 32


def make_masked_lm():
    """Return a small model. Its pooler, to which masked words give no gradient, is frozen."""
    backbone = models.DietBertBackbone(
        len(VOCABULARY), 2, 2, hidden_dim=32, intermediate_dim=64, max_sequence_length=LENGTH
    )
    backbone.pooled_dense.trainable = False
    return models.DietBertMaskedLM(backbone)


def make_batches(steps):
    """Return batches of random sentences, which are the same in each process."""
    words = np.random.default_rng(0).integers(5, len(VOCABULARY), (512, LENGTH - 2))
    token_ids = np.pad(words, ((0, 0), (1, 1)), constant_values=((0, 0), (2, 3)))
    tokenizer = models.DietBertTokenizer(VOCABULARY)
    return pretraining.masked_lm_dataset(token_ids, tokenizer, BATCH_SIZE, repeat=True)[:steps]


def fit(steps, learning_rate):
    """TensorFlow and JAX: build and train the model in the scope of all devices."""
    batches = [make_batches(steps)[i] for i in range(steps)]
    x, y, weights = keras.tree.map_structure(lambda *parts: np.concatenate(parts), *batches)
    x["padding_mask"] = x["padding_mask"].astype("int32")  # Keras sums masks over devices.
    if keras.config.backend() == "tensorflow":
        devices = tf.distribute.MirroredStrategy()
    else:
        devices = keras.distribution.DataParallel(auto_shard_dataset=False)
    with devices.scope():
        masked_lm = make_masked_lm()
        masked_lm.compile(keras.optimizers.AdamW(learning_rate))
        return masked_lm.fit(x, y, BATCH_SIZE, sample_weight=weights, shuffle=False, verbose=2)


def wrap(masked_lm):
    """Return the model as `DistributedDataParallel`, with the weights of the first process."""
    # Building a functional Keras model again registers its weights with PyTorch.
    masked_lm.build(masked_lm.input_shape)
    parallel_model = torch.nn.parallel.DistributedDataParallel(masked_lm)
    # The dropout seeds are now equal too. Each process gets its own.
    for variable in masked_lm.non_trainable_variables:
        if variable.path.endswith("seed_generator_state"):
            variable.assign_add([torch.distributed.get_rank(), 0])
    return parallel_model


def part_of_process(array):
    """Return the rows of a batch that this process trains on."""
    return np.split(array, torch.distributed.get_world_size())[torch.distributed.get_rank()]


def train_step(parallel_model, optimizer, batch):
    """Take a step on a batch and return its loss. Each process passes the whole batch."""
    inputs, labels, weights = keras.tree.map_structure(part_of_process, batch)
    logits = parallel_model(inputs, training=True)
    losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    weights = keras.ops.convert_to_tensor(weights, dtype=losses.dtype)
    num_masked = keras.ops.sum(weights)
    torch.distributed.all_reduce(num_masked)
    loss = keras.ops.sum(losses * weights) / num_masked
    optimizer.zero_grad()
    # DistributedDataParallel averages gradients, but the loss is a sum over the processes.
    (loss * torch.distributed.get_world_size()).backward()
    optimizer.step()
    torch.distributed.all_reduce(loss := loss.detach())
    return float(loss)


def train(steps, learning_rate):
    """PyTorch: train a model, and delete it by returning, before the process group is destroyed."""
    parallel_model = wrap(make_masked_lm())
    optimizer = torch.optim.AdamW(parallel_model.parameters(), learning_rate)
    for step, batch in enumerate(make_batches(steps)):
        loss = train_step(parallel_model, optimizer, batch)
        if torch.distributed.get_rank() == 0:
            print(f"step {step + 1}: loss {loss:.4f}", flush=True)


def main(steps=100, learning_rate=0.001):
    """Train on all devices of this machine."""
    if keras.config.backend() != "torch":
        return fit(steps, learning_rate)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group()  # NCCL on GPUs, and Gloo on CPUs
    train(steps, learning_rate)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
