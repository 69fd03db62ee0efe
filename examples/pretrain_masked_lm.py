"""Pretrain a BERT with each of several position encodings, and compare their losses.

All models get the same text, number of steps and seed. The script packs full sentences (appendix A
of Chen et al., EMNLP 2021). It takes learning rate and warm-up from their Table 7. The paper names
no optimizer for BERT. AdamW and linear decay follow BERT. For each encoding you see the losses on
held-out text and a few masked words with the model's guesses. The last lines compare the validation
losses. The output folder then holds a preset of each model, its loss history and a picture of its
positional scores.

Without `--text` the script trains on the language reference that ships with every Python, so it
downloads nothing. `KERAS_BACKEND` chooses the backend. To resume an interrupted run, give the same
command again: training continues after the last validation.

    KERAS_BACKEND=jax python examples/pretrain_masked_lm.py --steps 500
    python examples/pretrain_masked_lm.py --text wiki/*.txt --validation-text held_out.txt
"""

import csv
import itertools
import math
import os
import sys

import common
import keras
import numpy as np
from common import Checkpoint, make_strategy
from pretrain_options import parse_arguments

from keras_diet import analysis, layers, models, pretraining


def main(argv=None):
    arguments = parse_arguments(argv)
    strategy = make_strategy(arguments)
    per_model = ("output_dir", "overwrite", "position_encoding", "strategy")
    options = {name: value for name, value in vars(arguments).items() if name not in per_model}
    options["backend"] = keras.config.backend()
    common.claim_output_dir(arguments.output_dir, options, arguments.overwrite)

    tokenizer = load_tokenizer(arguments)
    sequences = load_sequences(arguments, tokenizer, validation=False)
    validation_sequences = load_sequences(arguments, tokenizer, validation=True)
    losses = {}
    for name in arguments.position_encoding:
        print(f"\n== {name} ({keras.config.backend()}) ==", flush=True)
        folder = arguments.output_dir / name
        folder.mkdir(exist_ok=True)
        keras.utils.set_random_seed(arguments.seed)
        with common.scope_of(strategy):
            masked_lm = build_model(arguments, name, tokenizer)
        describe(masked_lm, sequences)
        losses[name] = train(
            masked_lm, tokenizer, sequences, validation_sequences, arguments, folder
        )
        save_preset(masked_lm, tokenizer, arguments, folder / "preset")
        if name not in ("none", "shaw"):
            scores = analysis.position_scores(masked_lm.backbone)
            analysis.plot_scores(scores).savefig(folder / "position_scores.png")
        print("Masked words of held-out sentences, guessed by the reloaded preset:")
        common.print_guesses(folder / "preset", example_sentences(arguments, tokenizer))

    print(f"\nValidation loss after {arguments.steps} steps, seed {arguments.seed}:")
    print("  ".join(f"{name}: {loss:.4f}" for name, loss in losses.items()))
    print(f"Presets, histories and pictures are in {arguments.output_dir}.")


# === Step 1: text to sequences of token ids ===


def documents(arguments, validation):
    """Yield the documents of one split. By default every tenth document is held out."""
    if arguments.validation_text:
        yield from common.read_text(arguments.validation_text if validation else arguments.text)
        return
    count = 0
    for count, document in enumerate(common.read_text(arguments.text), start=1):
        if (count % 10 == 1) == validation:
            yield document
    if count == 1:
        raise ValueError(
            "--text holds a single document. If it is held out, no text is left to train on. "
            "Separate documents by blank lines, or pass --validation-text."
        )


def load_tokenizer(arguments):
    """Train the WordPiece vocabulary, or read the vocabulary of an earlier run."""
    path = arguments.output_dir / "vocabulary.txt"
    lowercase = not arguments.cased
    if not path.exists():
        lines = itertools.chain.from_iterable(documents(arguments, validation=False))
        vocabulary = pretraining.train_wordpiece_vocabulary(
            lines, arguments.vocabulary_size, lowercase=lowercase
        )
        temporary = path.with_name("unfinished.txt")
        temporary.write_text("".join(f"{token}\n" for token in vocabulary), encoding="utf-8")
        os.replace(temporary, path)
    return models.DietBertTokenizer(str(path), lowercase=lowercase)


def load_sequences(arguments, tokenizer, validation):
    """Pack one split into a file of sequences, and map the file into memory."""
    path = arguments.output_dir / ("validation.npy" if validation else "train.npy")
    if not path.exists():
        length = arguments.sequence_length
        sequences = pretraining.pack_sentences(documents(arguments, validation), tokenizer, length)
        pretraining.write_packed(sequences, path, length, tokenizer.vocabulary_size())
    return np.load(path, mmap_mode="r")


# === Step 2: the model ===


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
    # Masked language modeling does not use the pooler, so it gets no gradient.
    backbone.pooled_dense.trainable = False
    # Training needs no preprocessor, because its batches are packed and masked already.
    masked_lm = models.DietBertMaskedLM(backbone)
    common.compile_with_adamw(masked_lm, arguments.learning_rate, arguments.steps, arguments)
    # `load_checkpoint` can only restore an optimizer that has its variables.
    masked_lm.optimizer.build(masked_lm.trainable_variables)
    return masked_lm


def describe(masked_lm, sequences):
    print(f"{masked_lm.count_params():,} parameters, {len(sequences):,} sequences")
    names = ("rank", "sharing", "segment_encoding", "projection_dim")
    print(", ".join(f"{name}={getattr(masked_lm.backbone, name)}" for name in names))


# === Step 3: training ===


def train(masked_lm, tokenizer, sequences, validation_sequences, arguments, folder):
    """Train for the remaining steps, and return the last validation loss."""

    def batches(sequences, **options):
        return pretraining.masked_lm_dataset(
            sequences,
            tokenizer,
            arguments.batch_size,
            seed=arguments.seed,
            num_segments=2 if arguments.document_segments else 1,
            **options,
        )

    has_strategy = arguments.strategy != "none"
    dataset = batches(sequences, repeat=True)
    held_out = batches(validation_sequences, shuffle=False, drop_remainder=has_strategy)
    held_out = held_out[: arguments.validation_batches]
    prepare = common.as_tf_dataset if has_strategy else lambda dataset: dataset

    checkpoint, history = folder / "checkpoint.weights.h5", folder / "history.csv"
    done = common.load_checkpoint(masked_lm, checkpoint)
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


# === Step 4: the result ===


def save_preset(masked_lm, tokenizer, arguments, path):
    masked_lm.preprocessor = models.DietBertMaskedLMPreprocessor(
        tokenizer,
        sequence_length=arguments.sequence_length,
        mask_selection_length=math.ceil(0.15 * arguments.sequence_length),
    )
    masked_lm.save_to_preset(str(path))


def example_sentences(arguments, tokenizer, count=3):
    """Return a few held-out sentences that fit into a sequence."""
    paragraphs = itertools.chain.from_iterable(documents(arguments, validation=True))
    sentences = (
        sentence
        for paragraph in paragraphs
        for sentence in pretraining.split_sentences(paragraph)
        if len(sentence.split()) >= 8
        and sentence.endswith(".")
        and len(tokenizer(sentence)) <= min(24, arguments.sequence_length - 2)
    )
    return list(itertools.islice(sentences, count))


if __name__ == "__main__":
    main()
