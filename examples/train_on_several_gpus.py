"""Pretrain a DIET BERT on PyTorch with one process for each device.

Each process trains on its part of every batch, and `DistributedDataParallel` averages the
gradients. The loss is the mean over the masked tokens of the whole batch, wherever they are.

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

    # A functional Keras model registers its weights with PyTorch when it is built once more.
    masked_lm.build(masked_lm.input_shape)
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else None
    parallel_model = torch.nn.parallel.DistributedDataParallel(masked_lm, device_ids=devices)
    # The seeds of dropout are the first process's as well: let each drop something else.
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
            f"The batch must divide among the processes. Received: {len(array)} sequences for "
            f"{count} processes"
        )
    return np.split(np.asarray(array), count)[rank]


def train_step(parallel_model, optimizer, batch):
    """Take a step on a batch, the whole of it in each process; return its loss."""
    import torch.distributed as processes

    inputs, labels, weights = keras.tree.map_structure(part_of_process, batch)
    logits = parallel_model(inputs, training=True)
    losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    weights = keras.ops.convert_to_tensor(weights, dtype=losses.dtype)
    num_masked = keras.ops.sum(weights)
    processes.all_reduce(num_masked)
    loss = keras.ops.sum(losses * weights) / num_masked
    optimizer.zero_grad()
    # Gradients are averaged over the processes, and this is a sum.
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
    # DistributedDataParallel waits for gradients of all weights; the pooler has none here.
    backbone.pooled_dense.trainable = False
    return models.DietBertMaskedLM(backbone)


def make_batches(batch_size):
    """Return batches of random sentences, the same in each process, without end."""
    words = np.random.default_rng(0).integers(5, len(VOCABULARY), (512, LENGTH - 2))
    token_ids = np.pad(words, ((0, 0), (1, 1)), constant_values=((0, 0), (2, 3)))
    tokenizer = models.DietBertTokenizer(VOCABULARY)
    return pretraining.masked_lm_dataset(token_ids, tokenizer, batch_size, repeat=True)


def train(arguments):
    """Train a model, and let go of it before the processes part.

    It holds on to their group. Were it the last to do so, it would wait for the threads of gloo
    while it keeps Python's lock, which they may need to end.
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
    parser.add_argument("--batch-size", type=int, default=32, help="sequences, of all processes")
    parser.add_argument("--learning-rate", type=float, default=0.001, help="of AdamW")
    return parser.parse_args(argv)


def main(argv=None):
    arguments = parse_arguments(argv)
    if keras.config.backend() != "torch":
        sys.exit(
            "This example is PyTorch's. Set KERAS_BACKEND=torch; for TensorFlow and JAX see "
            "docs/distribution.md."
        )
    if "LOCAL_RANK" not in os.environ:
        sys.exit("Start it by torchrun, one process for each device: see the head of the script.")
    import torch

    if torch.cuda.is_available():
        # Before the model is built, which puts it on this device.
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    train(arguments)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
