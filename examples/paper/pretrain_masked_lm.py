"""Pretrain a BERT with each of several position encodings, and compare their losses.

All models get the same text, number of steps and seed. The script packs full sentences (appendix A
of Chen et al., EMNLP 2021). It takes learning rate and warm-up from their Table 7. The paper names
no optimizer for BERT. AdamW and linear decay follow BERT. For each encoding you see the losses on
held-out text and a few masked words with the model's guesses. The last lines compare the validation
losses. The output folder then holds a preset of each model, its loss history and a picture of its
positional scores.

Without `--text` the script trains on the language reference that ships with every Python, so it
downloads nothing. `KERAS_BACKEND` chooses the backend. To resume an interrupted run, give the same
command again. Training continues at the last checkpoint, as if it had never stopped.

    KERAS_BACKEND=jax python -m examples.paper.pretrain_masked_lm --steps 500
    python -m examples.paper.pretrain_masked_lm --text wiki/*.txt --validation-text held_out.txt
    python -m examples.paper.pretrain_masked_lm --language en en/*.txt --language de de/*.txt

With `--beam`, Apache Beam packs each text file into a file of sequences. With several languages,
the script trains a SentencePiece tokenizer, and samples texts and sequences of the languages as XLM
does (docs/guides/multilingual.md).
"""

import itertools
import math
import os
import sys

import keras
import numpy as np

from examples.paper import common
from examples.paper.common import make_strategy
from examples.paper.pretrain_options import parse_arguments
from keras_diet import analysis, models, pretraining, training
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS


def main(argv=None):
    arguments = parse_arguments(argv)
    strategy = make_strategy(arguments)
    per_model = ("output_dir", "overwrite", "position_encoding", "strategy", "texts", "save_every")
    options = {name: value for name, value in vars(arguments).items() if name not in per_model}
    options["backend"] = keras.config.backend()
    common.claim_output_dir(arguments.output_dir, options, arguments.overwrite)

    tokenizer = load_tokenizer(arguments)
    sequences = load_sequences(arguments, tokenizer)
    held_out = validation_documents(arguments)
    validation_sequences = pack(arguments, tokenizer, "validation", held_out)
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
        reads_content = name in ("query_relative", "forgetting")
        if name != "none" and POSITION_ENCODINGS[name].attention is None and not reads_content:
            scores = analysis.position_scores(masked_lm.backbone)
            analysis.plot_scores(scores).savefig(folder / "position_scores.png")
        print("Masked words of held-out sentences, guessed by the reloaded preset:")
        common.print_guesses(folder / "preset", example_sentences(arguments, tokenizer))

    print(f"\nValidation loss after {arguments.steps} steps, seed {arguments.seed}:")
    print("  ".join(f"{name}: {loss:.4f}" for name, loss in losses.items()))
    print(f"Presets, histories and pictures are in {arguments.output_dir}.")


# === Step 1: text to sequences of token ids ===


def documents(arguments, validation, text):
    """Yield the documents of one split. By default every tenth document is held out."""
    if arguments.validation_text:
        yield from common.read_text(arguments.validation_text if validation else text)
        return
    count = 0
    for count, document in enumerate(common.read_text(text), start=1):
        if (count % 10 == 1) == validation:
            yield document
    if count == 1:
        raise ValueError(
            "--text or --language holds a single document. If it is held out, no text is left to "
            "train on. Separate documents by blank lines, or pass --validation-text."
        )


def validation_documents(arguments):
    """Yield the held-out documents of all languages. `--validation-text` has them all."""
    texts = [arguments.text] if arguments.validation_text else arguments.texts.values()
    return itertools.chain.from_iterable(documents(arguments, True, text) for text in texts)


def load_tokenizer(arguments):
    """Train the tokenizer, or read the vocabulary of an earlier run."""
    is_sentence_piece = arguments.tokenizer == "sentencepiece"
    path = arguments.output_dir / ("vocabulary.spm" if is_sentence_piece else "vocabulary.txt")
    if not path.exists():
        train = train_sentence_piece if is_sentence_piece else train_wordpiece
        temporary = path.with_name("unfinished.txt")
        temporary.write_bytes(train(arguments))
        os.replace(temporary, path)
    if is_sentence_piece:
        return models.DietBertSentencePieceTokenizer(path)
    return models.DietBertTokenizer(str(path), lowercase=not arguments.cased)


def paragraphs(arguments, text):
    """Yield the paragraphs of a language for training."""
    return itertools.chain.from_iterable(documents(arguments, False, text))


def train_wordpiece(arguments):
    vocabulary = pretraining.train_wordpiece_vocabulary(
        itertools.chain.from_iterable(
            paragraphs(arguments, text) for text in arguments.texts.values()
        ),
        arguments.vocabulary_size,
        lowercase=not arguments.cased,
    )
    return "".join(f"{token}\n" for token in vocabulary).encode()


def train_sentence_piece(arguments):
    rule = "nmt_nfkc" if arguments.cased else "nmt_nfkc_cf"
    return models.DietBertSentencePieceTokenizer.from_texts(
        {name: list(paragraphs(arguments, text)) for name, text in arguments.texts.items()},
        arguments.vocabulary_size,
        seed=arguments.seed,
        normalization_rule_name=rule,
    ).proto


def load_sequences(arguments, tokenizer):
    """Return the sequences of one text, or a dictionary with the sequences of each language."""
    if not arguments.language:
        return load_text(arguments, tokenizer, "train", arguments.text)
    return {
        language: load_text(arguments, tokenizer, f"train.{language}", text)
        for language, text in arguments.texts.items()
    }


def load_text(arguments, tokenizer, name, text):
    """Pack the text of a language, in this process or with Apache Beam."""
    if not arguments.beam:
        return pack(arguments, tokenizer, name, documents(arguments, False, text))
    folder = arguments.output_dir / name
    return pretraining.pack_with_beam(
        *(text, tokenizer, arguments.sequence_length, folder),
        document_masks=arguments.document_masks,
    )


def pack(arguments, tokenizer, name, documents):
    """Pack documents into a file of sequences, and map the file into memory."""
    path = arguments.output_dir / f"{name}.npy"
    if not path.exists():
        length = arguments.sequence_length
        sequences = pretraining.pack_sentences(
            documents, tokenizer, length, document_masks=arguments.document_masks
        )
        pretraining.write_packed(sequences, path, length, tokenizer.vocabulary_size())
    return np.load(path, mmap_mode="r")


# === Step 2: the model ===


def build_model(arguments, position_encoding, tokenizer):
    encoding = POSITION_ENCODINGS[position_encoding]
    is_per_head = position_encoding.startswith("diet") and arguments.projection_dim is None
    # A single segment tells nothing. Fine-tuning adds segments, as in appendix A of the paper.
    segments = ("per-head" if is_per_head else "input") if arguments.document_segments else "none"
    backbone = models.DietBertBackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=arguments.num_layers,
        num_heads=arguments.num_heads,
        hidden_dim=arguments.hidden_dim,
        intermediate_dim=arguments.intermediate_dim,
        dropout=arguments.dropout,
        max_sequence_length=arguments.sequence_length,
        position_encoding=position_encoding,
        rank=arguments.rank if encoding.takes("rank") else None,
        initial_score_stddev=arguments.initial_score_stddev
        if encoding.takes("initial_score_stddev")
        else None,
        sharing=arguments.sharing if arguments.sharing in encoding.sharing_modes else None,
        segment_encoding=arguments.segment_encoding or segments,
        projection_dim=arguments.projection_dim if encoding.takes("projection_dim") else None,
        recompute=arguments.recompute,
        dtype=arguments.dtype,
    )
    # Masked language modeling does not use the pooler, so it gets no gradient.
    backbone.pooled_dense.trainable = False
    # Training needs no preprocessor, because its batches are packed and masked already.
    masked_lm = models.DietBertMaskedLM(backbone)
    num_batches = arguments.steps * arguments.accumulation_steps
    common.compile_for_training(masked_lm, arguments.learning_rate, num_batches, arguments)
    return masked_lm


def describe(masked_lm, sequences):
    count = sum(map(len, sequences.values())) if isinstance(sequences, dict) else len(sequences)
    print(f"{masked_lm.count_params():,} parameters, {count:,} sequences")
    names = ("rank", "sharing", "segment_encoding", "projection_dim")
    print(", ".join(f"{name}={getattr(masked_lm.backbone, name)}" for name in names))


# === Step 3: training ===


def train(masked_lm, tokenizer, sequences, validation_sequences, arguments, folder):
    """Train, or continue with the next step, and return the last validation loss."""

    def batches(sequences, **options):
        return pretraining.masked_lm_dataset(
            sequences,
            tokenizer,
            arguments.batch_size,
            seed=arguments.seed,
            num_segments=2 if arguments.document_segments else 1,
            sampling_exponent=arguments.sampling_exponent,
            document_masks=arguments.document_masks,
            **options,
        )

    has_strategy = arguments.strategy != "none"
    dataset = batches(sequences, repeat=True)
    held_out = batches(validation_sequences, shuffle=False, drop_remainder=has_strategy)
    held_out = held_out[: arguments.validation_batches]
    if has_strategy:
        dataset, held_out = map(common.with_integer_masks, (dataset, held_out))
        held_out = pretraining.as_tf_dataset(held_out)
    interval, parts = arguments.validation_interval, arguments.accumulation_steps
    resume = training.ExactResume(folder / "checkpoints", arguments.save_every)
    history = resume.fit(
        masked_lm,
        dataset[: arguments.steps * parts],
        epochs=arguments.steps // interval,
        steps_per_epoch=interval * parts,
        shuffle=False,
        validation_data=held_out,
        validation_steps=len(held_out),
        verbose=1 if sys.stdout.isatty() else 2,
    )
    common.write_history(folder / "history.csv", history)
    return history.history["val_loss"][-1]


# === Step 4: the result ===


def save_preset(masked_lm, tokenizer, arguments, path):
    # Fine-tuning trains the pooler.
    masked_lm.backbone.pooled_dense.trainable = True
    masked_lm.preprocessor = models.DietBertMaskedLMPreprocessor(
        tokenizer,
        sequence_length=arguments.sequence_length,
        mask_selection_length=math.ceil(0.15 * arguments.sequence_length),
    )
    masked_lm.save_to_preset(str(path))


def example_sentences(arguments, tokenizer, count=3):
    """Return a few held-out sentences that fit into a sequence."""
    paragraphs = itertools.chain.from_iterable(validation_documents(arguments))
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
