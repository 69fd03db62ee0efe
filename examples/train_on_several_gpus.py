"""Pretrain a DIET BERT on PyTorch with one process for each device.

Each process trains on its part of every batch, and `DistributedDataParallel` averages the
gradients. The loss is the mean over all masked tokens of the batch, in all processes. You see it
after each step. The sentences are random, so the script needs no data.

    KERAS_BACKEND=torch torchrun --nproc-per-node 8 examples/train_on_several_gpus.py
    KERAS_BACKEND=torch torchrun --nproc-per-node 2 examples/train_on_several_gpus.py --steps 5
"""

import argparse
import os
import sys

import keras
import numpy as np

from keras_diet import models, pretraining

WORDS = ["one", "two", "three", "ran", "sat", "slept", "."]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
LENGTH = 16


def wrap(masked_lm):
    """Return the model as `DistributedDataParallel`, with the weights of the first process."""
    import torch

    # Building a functional Keras model again registers its weights with PyTorch.
    masked_lm.build(masked_lm.input_shape)
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else None
    parallel_model = torch.nn.parallel.DistributedDataParallel(masked_lm, device_ids=devices)
    # The dropout seeds are now equal too. Each process gets its own, to drop different values.
    for variable in masked_lm.non_trainable_variables:
        if variable.path.endswith("seed_generator_state"):
            variable.assign_add([torch.distributed.get_rank(), 0])
    return parallel_model


def part_of_process(array):
    """Return the rows of a batch that this process trains on."""
    import torch.distributed as processes

    count, rank = processes.get_world_size(), processes.get_rank()
    if len(array) % count:
        raise ValueError(
            "--batch-size must be a multiple of the number of processes. Received: "
            f"{len(array)} sequences for {count} processes."
        )
    return np.split(np.asarray(array), count)[rank]


def train_step(parallel_model, optimizer, batch):
    """Take a step on a batch and return its loss. Each process passes the whole batch."""
    import torch.distributed as processes

    inputs, labels, weights = keras.tree.map_structure(part_of_process, batch)
    logits = parallel_model(inputs, training=True)
    losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    weights = keras.ops.convert_to_tensor(weights, dtype=losses.dtype)
    num_masked = keras.ops.sum(weights)
    processes.all_reduce(num_masked)
    loss = keras.ops.sum(losses * weights) / num_masked
    optimizer.zero_grad()
    # DistributedDataParallel averages gradients, but the loss is a sum over the processes.
    (loss * processes.get_world_size()).backward()
    optimizer.step()
    loss = loss.detach()
    processes.all_reduce(loss)
    return float(loss)


def make_masked_lm():
    backbone = models.DietBertBackbone(
        vocabulary_size=len(VOCABULARY),
        num_layers=2,
        num_heads=2,
        hidden_dim=32,
        intermediate_dim=64,
        max_sequence_length=LENGTH,
    )
    # DistributedDataParallel waits for the gradients of all weights. The pooler gets none here.
    backbone.pooled_dense.trainable = False
    return models.DietBertMaskedLM(backbone)


def make_batches(batch_size):
    """Return endless batches of random sentences, which are the same in each process."""
    words = np.random.default_rng(0).integers(5, len(VOCABULARY), (512, LENGTH - 2))
    token_ids = np.pad(words, ((0, 0), (1, 1)), constant_values=((0, 0), (2, 3)))
    tokenizer = models.DietBertTokenizer(VOCABULARY)
    return pretraining.masked_lm_dataset(token_ids, tokenizer, batch_size, repeat=True)


def train(arguments):
    """Train a model, and delete it by returning, before the process group is destroyed.

    The model holds a reference to the group. If this reference were the last one, deleting it would
    wait for gloo's threads and hold Python's lock, which these threads may need to end.
    """
    import torch

    masked_lm = make_masked_lm()
    parallel_model = wrap(masked_lm)
    optimizer = torch.optim.AdamW(masked_lm.parameters(), arguments.learning_rate)
    for step, batch in enumerate(make_batches(arguments.batch_size)[: arguments.steps]):
        loss = train_step(parallel_model, optimizer, batch)
        if torch.distributed.get_rank() == 0:
            print(f"step {step + 1}: loss {loss:.4f}", flush=True)


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=100, help="optimizer steps")
    parser.add_argument("--batch-size", type=int, default=32, help="sequences, for all processes")
    parser.add_argument("--learning-rate", type=float, default=0.001, help="learning rate of AdamW")
    return parser.parse_args(argv)


def main(argv=None):
    arguments = parse_arguments(argv)
    if keras.config.backend() != "torch":
        sys.exit(
            f"This example needs KERAS_BACKEND=torch. Received: {keras.config.backend()}. For "
            "TensorFlow and JAX see docs/guides/distribution.md."
        )
    if "LOCAL_RANK" not in os.environ:
        sys.exit(
            "Start it by torchrun, with one process for each device: "
            "torchrun --nproc-per-node 2 examples/train_on_several_gpus.py"
        )
    import torch

    if torch.cuda.is_available():
        # Keras builds the model on this device.
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    train(arguments)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
