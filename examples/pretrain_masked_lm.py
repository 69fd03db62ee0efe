"""Pretrain DIET BERTs on text and compare where positions go.

For each of the position encodings asked for, with one budget and one seed: pack full sentences,
pretrain with AdamW, linear warm-up and decay (Table 7 of Chen et al., EMNLP 2021, scaled down),
validate on held-out text, save a preset, its history and a picture of the positional scores,
reload the preset and fill in masked words. The last lines compare the validation losses.

Without `--text` it trains on the language reference that ships inside every Python, so nothing
is downloaded. The backend is chosen by `KERAS_BACKEND`. An interrupted run goes on where its last
validation left it when it is started again with the same options.

    KERAS_BACKEND=jax python examples/pretrain_masked_lm.py --steps 500
    python examples/pretrain_masked_lm.py --text wiki/*.txt --validation-text held_out.txt
"""

import argparse
import contextlib
import csv
import itertools
import json
import logging
import math
import os
import shutil
import sys
from pathlib import Path

import keras
import numpy as np

from keras_diet import analysis, layers, models, pretraining

MASK = "[MASK]"


def positive_int(text):
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"must be positive, not {value}")
    return value


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    data = parser.add_argument_group("data")
    data.add_argument(
        "--text",
        nargs="+",
        metavar="FILE",
        help="UTF-8 text files to train on; blank lines or <doc> tags separate documents. Without "
        "them the embedded Python language reference is used",
    )
    data.add_argument(
        "--validation-text",
        nargs="+",
        metavar="FILE",
        help="held-out text files; without them every tenth document is held out",
    )
    data.add_argument(
        "--vocabulary-size",
        type=positive_int,
        default=4000,
        help="tokens in the WordPiece vocabulary",
    )
    data.add_argument("--cased", action="store_true", help="keep upper case letters")
    data.add_argument(
        "--document-segments",
        action="store_true",
        help="number the documents in a sequence as segments 0 and 1; without it all tokens are in "
        "segment 0, as in the paper",
    )
    data.add_argument(
        "--sequence-length", type=positive_int, default=64, help="tokens in a sequence"
    )

    model = parser.add_argument_group("model")
    model.add_argument(
        "--position-encoding",
        nargs="+",
        default=["diet_abs", "input"],
        choices=list(layers.POSITION_ENCODINGS),
        help="one model is trained for each; input is BERT",
    )
    model.add_argument(
        "--rank",
        type=int,
        help="rank of the positional scores of diet_abs; default: head size",
    )
    model.add_argument(
        "--sharing",
        choices=["none", "head-wise", "layer-wise"],
        help="what shares position parameters, where an encoding has that choice; default: what "
        "its paper found best",
    )
    model.add_argument(
        "--projection-dim",
        type=positive_int,
        help="keys after Linformer's projection, for encodings that it goes with; default: none",
    )
    model.add_argument(
        "--segment-encoding",
        choices=["per-head", "input", "none"],
        help="where segments go; default: per head with DIET, else at the input",
    )
    model.add_argument("--num-layers", type=positive_int, default=2, help="Transformer layers")
    model.add_argument("--num-heads", type=positive_int, default=4, help="attention heads")
    model.add_argument(
        "--hidden-dim", type=positive_int, default=128, help="size of the hidden states"
    )
    model.add_argument(
        "--intermediate-dim", type=positive_int, default=512, help="feed-forward width"
    )
    model.add_argument("--dropout", type=float, default=0.1, help="dropout rate")
    model.add_argument("--dtype", default="float32", help="dtype policy, e.g. mixed_bfloat16")

    training = parser.add_argument_group("training")
    training.add_argument("--steps", type=positive_int, default=400, help="optimizer steps")
    training.add_argument(
        "--batch-size", type=positive_int, default=32, help="sequences in a batch"
    )
    training.add_argument("--learning-rate", type=float, default=0.0018, help="its peak")
    training.add_argument(
        "--warmup-proportion", type=float, default=0.025, help="part of the steps to warm up"
    )
    training.add_argument("--weight-decay", type=float, default=0.01, help="of AdamW")
    training.add_argument(
        "--validation-interval",
        type=positive_int,
        help="steps from one validation to the next, a divisor of --steps; default: a quarter of "
        "the steps, or all of them",
    )
    training.add_argument(
        "--validation-batches", type=positive_int, default=50, help="most batches in a validation"
    )
    training.add_argument("--seed", type=int, default=0, help="seed of everything random")
    training.add_argument(
        "--strategy",
        choices=["none", "mirrored", "tpu"],
        default="none",
        help="TensorFlow only: train on all GPUs of this machine, or on the TPU that TPU_NAME "
        "names, by default this machine's; --batch-size counts the sequences on all devices",
    )

    parser.add_argument(
        "--output-dir",
        type=Path,
        default=Path("runs", "pretrain_masked_lm", keras.config.backend()),
        help="where results go",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="start anew although the output folder is in use"
    )
    arguments = parser.parse_args(argv)
    check_meanings(parser, arguments)
    check_strategy(parser, arguments)
    if arguments.validation_interval is None:
        arguments.validation_interval = arguments.steps // (1 if arguments.steps % 4 else 4)
    if arguments.steps % arguments.validation_interval:
        parser.error("--steps must be a multiple of --validation-interval")
    if arguments.validation_text and not arguments.text:
        parser.error("--validation-text needs --text: the embedded text has held-out documents")
    return arguments


def check_meanings(parser, arguments):
    """Refuse options that none of the encodings would take."""
    encodings = [layers.POSITION_ENCODINGS[name] for name in arguments.position_encoding]
    taken = {
        "rank": any(encoding.has_rank for encoding in encodings),
        "sharing": any(arguments.sharing in encoding.sharing_modes for encoding in encodings),
        "projection_dim": any(encoding.allows_projection for encoding in encodings),
    }
    for name, is_taken in taken.items():
        if getattr(arguments, name) is not None and not is_taken:
            option = "--" + name.replace("_", "-")
            parser.error(f"{option} has no meaning with {', '.join(arguments.position_encoding)}")


def check_strategy(parser, arguments):
    """Stop where `tf.distribute` cannot work, and say what does."""
    instead = {
        "jax": "keras.distribution",
        "torch": "torchrun with examples/train_on_several_gpus.py",
    }
    backend = keras.config.backend()
    if arguments.strategy != "none" and backend in instead:
        parser.error(
            f"--strategy {arguments.strategy} needs KERAS_BACKEND=tensorflow. On {backend} use "
            f"{instead[backend]}: see docs/distribution.md."
        )


def make_strategy(arguments):
    """Return the `tf.distribute` strategy to train with, or `None`."""
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


def prepare_output_dir(arguments):
    """Create the output folder, or make sure that it belongs to a run with the same options."""
    options = {
        name: value
        for name, value in vars(arguments).items()
        if name not in ("output_dir", "overwrite", "position_encoding", "strategy")
    }
    options["backend"] = keras.config.backend()
    path = arguments.output_dir / "options.json"
    if arguments.overwrite and path.exists():
        shutil.rmtree(arguments.output_dir)
    if path.exists():
        previous = json.loads(path.read_text())
        changed = [name for name in options if previous.get(name) != options[name]]
        if changed:
            sys.exit(
                f"{arguments.output_dir} holds a run with other values of: {', '.join(changed)}. "
                "Choose another --output-dir, or start anew with --overwrite."
            )
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(options, indent=2) + "\n")


def embedded_documents():
    """Yield the topics of Python's language reference, each a list of paragraphs."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        paragraphs = (" ".join(text.split()) for text in topics[name].split("\n\n"))
        yield [paragraph for paragraph in paragraphs if paragraph]


def documents(arguments, validation):
    """Yield the documents of one split."""
    if validation and arguments.validation_text:
        yield from pretraining.read_documents(arguments.validation_text)
        return
    texts = pretraining.read_documents(arguments.text) if arguments.text else embedded_documents()
    count = 0
    for count, document in enumerate(texts, start=1):
        held_out = count % 10 == 1 and not arguments.validation_text
        if held_out == validation:
            yield document
    if count == 1 and not arguments.validation_text:
        raise ValueError(
            "--text holds a single document, so that nothing is left to train on once it is held "
            "out. Separate its documents by blank lines, or pass --validation-text."
        )


def load_tokenizer(arguments):
    """Train the WordPiece vocabulary, or read the one that an earlier run has trained."""
    path = arguments.output_dir / "vocabulary.txt"
    lowercase = not arguments.cased
    if not path.exists():
        vocabulary = pretraining.train_wordpiece_vocabulary(
            itertools.chain.from_iterable(documents(arguments, validation=False)),
            arguments.vocabulary_size,
            lowercase=lowercase,
        )
        temporary = path.with_name("unfinished.txt")
        temporary.write_text("".join(f"{token}\n" for token in vocabulary), encoding="utf-8")
        os.replace(temporary, path)
    return models.DietBertTokenizer(str(path), lowercase=lowercase)


def load_sequences(arguments, tokenizer, validation):
    """Pack one split into sequences on disk, and map them into memory."""
    path = arguments.output_dir / ("validation.npy" if validation else "train.npy")
    if not path.exists():
        sequences = pretraining.pack_sentences(
            documents(arguments, validation), tokenizer, arguments.sequence_length
        )
        pretraining.write_packed(
            sequences, path, arguments.sequence_length, tokenizer.vocabulary_size()
        )
    return np.load(path, mmap_mode="r")


def build_model(arguments, position_encoding, tokenizer):
    encoding = layers.POSITION_ENCODINGS[position_encoding]
    is_per_head = position_encoding.startswith("diet") and arguments.projection_dim is None
    backbone = models.DietBertBackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=arguments.num_layers,
        num_heads=arguments.num_heads,
        hidden_dim=arguments.hidden_dim,
        intermediate_dim=arguments.intermediate_dim,
        dropout=arguments.dropout,
        max_sequence_length=arguments.sequence_length,
        position_encoding=position_encoding,
        rank=arguments.rank if encoding.has_rank else None,
        sharing=arguments.sharing if arguments.sharing in encoding.sharing_modes else None,
        segment_encoding=arguments.segment_encoding or ("per-head" if is_per_head else "input"),
        projection_dim=arguments.projection_dim if encoding.allows_projection else None,
        dtype=arguments.dtype,
    )
    # The pooler takes no part in masked language modeling: there is nothing to train it with.
    backbone.pooled_dense.trainable = False
    # No preprocessor yet: training reads batches that are packed and masked already.
    masked_lm = models.DietBertMaskedLM(backbone)
    schedule = pretraining.WarmupLinearDecay(
        arguments.learning_rate, arguments.steps, arguments.warmup_proportion
    )
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=arguments.weight_decay)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    # Keras leaves XLA off in TensorFlow; with it a step takes less than half the time. PyTorch's
    # compiler takes longer to compile than a short run does to train. With a strategy Keras cannot
    # compile the step of all devices as one; TPUs compile what they run anyway.
    jit_compile = keras.config.backend() != "torch" and arguments.strategy == "none"
    masked_lm.compile(optimizer=optimizer, jit_compile=jit_compile)
    optimizer.build(masked_lm.trainable_variables)
    return masked_lm


class Checkpoint(keras.callbacks.Callback):
    """Save weights and optimizer after each validation; a crash leaves the last whole file."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch, logs=None):
        temporary = self.path.with_name("unfinished.weights.h5")
        self.model.save_weights(temporary)
        os.replace(temporary, self.path)


def steps_done(masked_lm):
    return int(keras.ops.convert_to_numpy(masked_lm.optimizer.iterations.value))


def prepare_for_strategy(dataset):
    """Return the batches with static shapes, and without booleans: Keras sums over devices."""

    def with_integer_mask(batch):
        inputs, *targets = batch
        return {**inputs, "padding_mask": inputs["padding_mask"].astype("int32")}, *targets

    return pretraining.as_tf_dataset(dataset.map(with_integer_mask))


def train(masked_lm, tokenizer, sequences, validation_sequences, arguments, folder):
    """Train for the steps that are left, and return the last validation loss."""
    data = {
        "batch_size": arguments.batch_size,
        "seed": arguments.seed,
        "num_segments": 2 if arguments.document_segments else 1,
    }
    dataset = pretraining.masked_lm_dataset(sequences, tokenizer, repeat=True, **data)
    held_out = pretraining.masked_lm_dataset(
        validation_sequences,
        tokenizer,
        shuffle=False,
        drop_remainder=arguments.strategy != "none",
        **data,
    )[: arguments.validation_batches]
    prepare = (lambda dataset: dataset) if arguments.strategy == "none" else prepare_for_strategy

    checkpoint, history = folder / "checkpoint.weights.h5", folder / "history.csv"
    if checkpoint.exists():
        masked_lm.load_weights(checkpoint)
        if not steps_done(masked_lm):
            raise ValueError(f"{checkpoint} does not fit the optimizer. Start with --overwrite.")
    done = steps_done(masked_lm)
    interval = arguments.validation_interval
    if done < arguments.steps:
        masked_lm.fit(
            prepare(dataset[done : arguments.steps]),
            initial_epoch=done // interval,
            epochs=arguments.steps // interval,
            steps_per_epoch=interval,
            shuffle=False,
            validation_data=prepare(held_out),
            callbacks=[keras.callbacks.CSVLogger(history, append=done > 0), Checkpoint(checkpoint)],
            verbose=1 if sys.stdout.isatty() else 2,
        )
    with open(history, newline="") as file:
        return float(list(csv.DictReader(file))[-1]["val_loss"])


def save_preset(masked_lm, tokenizer, arguments, path):
    masked_lm.preprocessor = models.DietBertMaskedLMPreprocessor(
        tokenizer,
        sequence_length=arguments.sequence_length,
        mask_selection_length=math.ceil(0.15 * arguments.sequence_length),
    )
    masked_lm.save_to_preset(str(path))


def print_predictions(preset, sentences, count=3):
    """Reload a preset, mask a word in the middle of each sentence, and print its best guesses."""
    masked_lm = models.DietBertMaskedLM.from_preset(str(preset))
    tokenizer = masked_lm.preprocessor.tokenizer
    for sentence in sentences:
        words = sentence.split()
        middle = len(words) // 2
        left, word, right = words[:middle], words[middle], words[middle + 1 :]
        before = [tokenizer.cls_token_id, *tokenizer(" ".join(left))]
        after = [*tokenizer(" ".join(right)), tokenizer.sep_token_id]
        token_ids = np.array([[*before, tokenizer.mask_token_id, *after]])
        logits = masked_lm(
            {
                "token_ids": token_ids,
                "segment_ids": np.zeros_like(token_ids),
                "padding_mask": np.ones_like(token_ids),
                "mask_positions": np.array([[len(before)]]),
            }
        )
        best = np.argsort(-keras.ops.convert_to_numpy(logits)[0, 0])[:count]
        guesses = ", ".join(tokenizer.id_to_token(int(token)) for token in best)
        print(f"  {' '.join([*left, MASK, *right])}\n    {word}? {guesses}")


def example_sentences(arguments, tokenizer, count=3):
    """Return a few held-out sentences that fit into a sequence."""
    sentences = (
        sentence
        for document in documents(arguments, validation=True)
        for paragraph in document
        for sentence in pretraining.split_sentences(paragraph)
        if len(sentence.split()) >= 8
        and sentence.endswith(".")
        and len(tokenizer(sentence)) <= min(24, arguments.sequence_length - 2)
    )
    return list(itertools.islice(sentences, count))


def run(arguments, position_encoding, tokenizer, sequences, validation_sequences, strategy):
    """Train one model, write its results, and return its validation loss."""
    print(f"\n== {position_encoding} ({keras.config.backend()}) ==", flush=True)
    folder = arguments.output_dir / position_encoding
    folder.mkdir(exist_ok=True)
    keras.utils.set_random_seed(arguments.seed)
    with strategy.scope() if strategy else contextlib.nullcontext():
        masked_lm = build_model(arguments, position_encoding, tokenizer)
    print(f"{masked_lm.count_params():,} parameters, {len(sequences):,} sequences")
    names = ("rank", "sharing", "segment_encoding", "projection_dim")
    print(", ".join(f"{name}={getattr(masked_lm.backbone, name)}" for name in names))
    loss = train(masked_lm, tokenizer, sequences, validation_sequences, arguments, folder)
    save_preset(masked_lm, tokenizer, arguments, folder / "preset")
    if position_encoding not in ("none", "shaw"):
        scores = analysis.position_scores(masked_lm.backbone)
        analysis.plot_scores(scores).savefig(folder / "position_scores.png")
    print("Masked words of held-out sentences, from the reloaded preset:")
    print_predictions(folder / "preset", example_sentences(arguments, tokenizer))
    return loss


def main(argv=None):
    # KerasHub reads fewer batches ahead than Grain has threads, and Grain warns of that.
    logging.getLogger("absl").setLevel(logging.ERROR)
    arguments = parse_arguments(argv)
    # Before anything is computed: the devices can only be chosen now.
    strategy = make_strategy(arguments)
    prepare_output_dir(arguments)
    tokenizer = load_tokenizer(arguments)
    sequences = load_sequences(arguments, tokenizer, validation=False)
    validation_sequences = load_sequences(arguments, tokenizer, validation=True)
    losses = {
        name: run(arguments, name, tokenizer, sequences, validation_sequences, strategy)
        for name in arguments.position_encoding
    }
    print(f"\nValidation loss after {arguments.steps} steps, seed {arguments.seed}:")
    print("  ".join(f"{name}: {loss:.4f}" for name, loss in losses.items()))
    print(f"Presets, histories and pictures are in {arguments.output_dir}.")


if __name__ == "__main__":
    main()
