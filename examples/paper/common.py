"""What several examples share: options, text, devices, the optimizer, and resuming a run."""

import argparse
import contextlib
import csv
import json
import os
import shutil
import sys
from pathlib import Path

import keras
import numpy as np

from keras_diet import models, pretraining, training
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS

# === Options ===


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Show the default of each option that has one."""

    def _get_help_string(self, action):
        has_default = action.default is not None and action.default is not False
        return super()._get_help_string(action) if has_default else action.help


def make_parser(description):
    return argparse.ArgumentParser(description=description, formatter_class=HelpFormatter)


def positive_int(text):
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"must be a positive integer. Received: {value}")
    return value


def position_encoding(text):
    """Return the name of an encoding. Without `choices`, help waits for no import."""
    if text not in POSITION_ENCODINGS:
        names = ", ".join(POSITION_ENCODINGS)
        raise argparse.ArgumentTypeError(f"must be one of {names}. Received: {text}")
    return text


def folder(text):
    return Path(text.replace("BACKEND", keras.config.backend()))


def add_output_option(add, script, help="folder for all results"):
    # Help shows the default as it is here. Otherwise `folder` gets it.
    add("--output-dir", type=folder, default=f"runs/{script}/BACKEND", help=help)


# === Text ===

TEXT_HELP = """UTF-8 text files. Blank lines or <doc> tags separate documents. Without files the
language reference that ships with every Python is used"""


def add_text_options(parser, held_out):
    parser.add_argument("--text", nargs="+", metavar="FILE", help=TEXT_HELP)
    parser.add_argument(
        "--validation-text",
        nargs="+",
        metavar="FILE",
        help=f"held-out text files. Without files {held_out} held out",
    )


def check_text_options(parser, arguments):
    if arguments.validation_text and not arguments.text:
        parser.error(
            "--validation-text needs --text, because the default text has a held-out part. "
            "Received: --validation-text alone. Pass both or none"
        )


def read_text(paths):
    """Return the documents of text files, or of Python's language reference without files."""
    return pretraining.read_documents(paths) if paths else language_reference()


def language_reference():
    """Yield the topics of the reference inside every Python. Each is a list of paragraphs."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        paragraphs = (" ".join(text.split()) for text in topics[name].split("\n\n"))
        yield [paragraph for paragraph in paragraphs if paragraph]


def draw_batch(tokenizer, arguments):
    """Cut text into full sequences `[CLS] ... [SEP]` without padding, and draw some of them."""
    content = arguments.length - 2
    # A part of a large text is enough to choose from.
    wanted = 32 * arguments.batch_size * content
    tokens = []
    for document in read_text(arguments.text):
        for paragraph in document:
            tokens.extend(tokenizer(paragraph))
        if len(tokens) >= wanted:
            break
    count = len(tokens) // content
    if count < arguments.batch_size:
        sys.exit(
            f"The text has {count} sequences of {arguments.length} tokens, too few for a batch of "
            f"{arguments.batch_size}. Choose another --text, --length or --batch-size."
        )
    rows = np.random.default_rng(arguments.seed).permutation(count)[: arguments.batch_size]
    token_ids = np.array(tokens[: count * content]).reshape(count, content)[rows]
    token_ids = np.pad(token_ids, ((0, 0), (1, 1)))
    token_ids[:, 0], token_ids[:, -1] = tokenizer.cls_token_id, tokenizer.sep_token_id
    return {
        "token_ids": token_ids,
        "segment_ids": np.zeros_like(token_ids),
        "padding_mask": np.ones_like(token_ids),
    }


# === Several devices ===


def add_strategy_option(parser):
    parser.add_argument(
        "--strategy",
        choices=["none", "mirrored", "tpu"],
        default="none",
        help="only with TensorFlow: train on all GPUs of this machine (mirrored), or on the TPU "
        "named by TPU_NAME, by default the TPU of this machine (tpu). The devices share each batch",
    )


def check_strategy(parser, arguments):
    """Stop if the backend is not TensorFlow, and name the alternative."""
    alternatives = {
        "jax": "keras.distribution",
        "torch": "torchrun with examples/several_devices.py",
    }
    backend = keras.config.backend()
    if arguments.strategy != "none" and backend in alternatives:
        parser.error(
            f"--strategy {arguments.strategy} needs KERAS_BACKEND=tensorflow. On {backend} use "
            f"{alternatives[backend]}: see docs/guides/distribution.md."
        )
    if arguments.strategy != "none" and arguments.accumulation_steps > 1:
        parser.error(
            "--accumulation-steps and --strategy cannot be used together. Received: "
            f"--accumulation-steps {arguments.accumulation_steps} --strategy {arguments.strategy}"
        )


def make_strategy(arguments):
    """Return the `tf.distribute` strategy to train with, or `None`.

    Call it before anything is computed. TensorFlow cannot change its devices later.
    """
    if arguments.strategy == "none":
        return None
    import tensorflow as tf

    if arguments.strategy == "tpu":
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=os.environ.get("TPU_NAME", "local")
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    else:
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
    replicas = strategy.num_replicas_in_sync
    if arguments.batch_size % replicas:
        sys.exit(
            f"--batch-size must be a multiple of the number of devices, {replicas}. "
            f"Received: {arguments.batch_size}"
        )
    print(f"{replicas} devices, {arguments.batch_size // replicas} sequences on each")
    return strategy


def scope_of(strategy):
    """Return the context in which to build and compile a model."""
    return strategy.scope() if strategy else contextlib.nullcontext()


def with_integer_masks(dataset):
    """Return masked-LM batches with integer padding masks.

    With a strategy, Keras sums over devices, and it cannot sum booleans.
    """

    def with_integer_mask(batch):
        inputs, *targets = batch
        return {**inputs, "padding_mask": inputs["padding_mask"].astype("int32")}, *targets

    return dataset.map(with_integer_mask)


# === Training ===


OPTIMIZERS = {"adamw": keras.optimizers.AdamW, "lamb": keras.optimizers.Lamb}


def add_training_options(add, warmup_proportion):
    add(
        "--optimizer",
        choices=list(OPTIMIZERS),
        default="adamw",
        help="adamw as for BERT, or lamb, which was made for large batches",
    )
    add(
        "--accumulation-steps",
        type=positive_int,
        default=1,
        metavar="N",
        help="average the gradients of N batches for each optimizer step, to train like a batch "
        "that is N times as large in the memory of one batch",
    )
    add(
        "--warmup-proportion",
        type=float,
        default=warmup_proportion,
        help="fraction of the steps to warm up",
    )
    add("--weight-decay", type=float, default=0.01, help="weight decay of the optimizer")
    add(
        "--recompute",
        choices=["none", "attention", "block"],
        default="none",
        help="what is computed again for the gradients, to save memory",
    )
    add(
        "--save-every",
        type=positive_int,
        default=200,
        metavar="BATCHES",
        help="batches between two checkpoints",
    )


def compile_for_training(model, learning_rate, num_batches, arguments, **options):
    """Compile a model with an optimizer, linear warm-up and linear decay, as BERT was trained.

    The paper states the warm-up (Table 7), but no optimizer and no decay. `options` are
    arguments of `compile`, such as a loss.
    """
    parts = arguments.accumulation_steps
    schedule = training.WarmupLinearDecay(
        learning_rate, -(-num_batches // parts), arguments.warmup_proportion
    )
    optimizer = OPTIMIZERS[arguments.optimizer](
        schedule if parts == 1 else training.AccumulatedSteps(schedule, parts),
        weight_decay=arguments.weight_decay,
        gradient_accumulation_steps=None if parts == 1 else parts,
    )
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    # With XLA a step on TensorFlow takes less than half the time, but Keras does not use XLA there
    # by default. PyTorch's compiler takes longer than a short run takes to train. With a strategy
    # Keras cannot compile the step of all devices as one program. TPUs always compile.
    jit_compile = keras.config.backend() != "torch" and arguments.strategy == "none"
    model.compile(optimizer=optimizer, jit_compile=jit_compile, **options)


# === Resuming a run ===


def claim_output_dir(folder, options, overwrite):
    """Create the output folder, or check that it holds a run with the same options."""
    path = folder / "options.json"
    if overwrite and path.exists():
        shutil.rmtree(folder)
    if path.exists():
        previous = json.loads(path.read_text())
        changed = [name for name in options if previous.get(name) != options[name]]
        if changed:
            sys.exit(
                f"{folder} holds a run with other values of: {', '.join(changed)}. "
                "Choose another --output-dir, or start again with --overwrite."
            )
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(options, indent=2) + "\n")


def write_history(path, history):
    """Write the losses and metrics of all epochs to a CSV file."""
    columns = {"epoch": history.epoch, **history.history}
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


# === Results ===


def print_guesses(preset, sentences, count=3):
    """Load a preset, mask the middle word of each sentence, and print the best guesses."""
    masked_lm = models.DietBertMaskedLM.from_preset(str(preset))
    tokenizer = masked_lm.preprocessor.tokenizer
    for sentence in sentences:
        words = sentence.split()
        middle = len(words) // 2
        left, word, right = words[:middle], words[middle], words[middle + 1 :]
        before = [tokenizer.cls_token_id, *tokenizer(" ".join(left))]
        after = [*tokenizer(" ".join(right)), tokenizer.sep_token_id]
        token_ids = np.array([[*before, tokenizer.mask_token_id, *after]])
        inputs = {
            "token_ids": token_ids,
            "segment_ids": np.zeros_like(token_ids),
            "padding_mask": np.ones_like(token_ids),
            "mask_positions": np.array([[len(before)]]),
        }
        logits = keras.ops.convert_to_numpy(masked_lm(inputs))[0, 0]
        guesses = ", ".join(tokenizer.id_to_token(int(i)) for i in np.argsort(-logits)[:count])
        print(f"  {' '.join([*left, '[MASK]', *right])}\n    {word}? {guesses}")
