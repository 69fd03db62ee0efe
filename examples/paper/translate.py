"""Train a Transformer with DIET positions to translate, measure BLEU, and translate.

The recipe follows `transformer_base` in Tensor2Tensor, the library that the paper uses (Chen et
al., EMNLP 2021, appendix A). It has pre-norm blocks, label smoothing, Adam, a learning rate with
linear warm-up and inverse square root, and batches of tokens. It averages the last checkpoints and
translates with beam search. The sizes are options. The paper trains 6 layers for 250,000 steps.

Without `--text` the script learns to write numbers in digits ("two hundred and seven" becomes
"2 0 7"), so it downloads nothing. `KERAS_BACKEND` chooses the backend. To resume an interrupted
run, give the same command again: training continues with the next step.

    KERAS_BACKEND=jax python -m examples.paper.translate
    python -m examples.paper.translate --text train.en train.de --validation-text val.en val.de
    echo "ninety thousand and six" | python -m examples.paper.translate --translate -
"""

import json
import os
import sys

import keras
import numpy as np
import sacrebleu

from examples.paper import common
from examples.paper.translate_data import number_pairs, read_lines, read_pairs
from examples.paper.translate_options import parse_arguments
from keras_diet import analysis, models, samplers, training

LENGTH_BUCKETS = (16, 24, 32, 48, 64)


def main(argv=None):
    arguments = parse_arguments(argv)
    preset = arguments.output_dir / "preset"
    if arguments.translate and preset.exists():
        translate_lines(load_preset(preset, arguments), arguments.translate)
        return
    options = {
        name: json.loads(json.dumps(value, default=str))
        for name, value in vars(arguments).items()
        if name
        not in ("output_dir", "overwrite", "save_every", "translate", "num_beams", "length_penalty")
    }
    options["backend"] = keras.config.backend()
    common.claim_output_dir(arguments.output_dir, options, arguments.overwrite)
    train_pairs, validation_pairs, test_pairs = load_text(arguments)
    tokenizer = load_tokenizer(arguments, train_pairs)
    keras.utils.set_random_seed(arguments.seed)
    translator = build_model(arguments, tokenizer)
    print(f"{translator.count_params():,} parameters, {len(train_pairs[0]):,} pairs")
    check_sources(translator, test_pairs[0])
    train(translator, train_pairs, validation_pairs, arguments)
    translator.save_to_preset(preset)

    translator = load_preset(preset, arguments)
    report_bleu(translator, *test_pairs, arguments.output_dir)
    plot_attention(translator, *test_pairs, arguments.output_dir / "cross_attention.png")
    print(f"Preset, history, translations and picture are in {arguments.output_dir}.")
    if arguments.translate:
        translate_lines(translator, arguments.translate)


# === Step 1: text and tokens ===


def load_text(arguments):
    """Return the pairs to train with, to validate with and to test with."""
    if not arguments.text:
        train_pairs, validation_pairs = number_pairs()
        return train_pairs, validation_pairs, validation_pairs
    test_text = arguments.test_text or arguments.validation_text
    texts = (arguments.text, arguments.validation_text, test_text)
    return [read_pairs(*files) for files in texts]


def load_tokenizer(arguments, pairs):
    """Train the tokenizer of both languages, or read the one of an earlier run."""
    path = arguments.output_dir / "tokenizer.model"
    if not path.exists():
        tokenizer = models.DietTransformerTokenizer.from_texts(
            [*pairs[0], *pairs[1]], arguments.vocabulary_size
        )
        temporary = path.with_name("unfinished.model")
        temporary.write_bytes(tokenizer.proto)
        os.replace(temporary, path)
    return models.DietTransformerTokenizer(str(path))


# === Step 2: the model ===


def build_model(arguments, tokenizer):
    preprocessor = models.DietTransformerSeq2SeqLMPreprocessor(
        tokenizer,
        encoder_sequence_length=arguments.sequence_length,
        decoder_sequence_length=arguments.sequence_length,
        length_buckets=buckets(arguments),
    )
    backbone = models.DietTransformerBackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=arguments.num_layers,
        num_heads=arguments.num_heads,
        hidden_dim=arguments.hidden_dim,
        intermediate_dim=arguments.intermediate_dim,
        dropout=arguments.dropout,
        max_sequence_length=arguments.sequence_length,
        position_encoding=arguments.position_encoding,
        max_distance=arguments.max_distance,
        initial_score_stddev=arguments.initial_score_stddev,
        cross_attention_positions=not arguments.no_cross_attention_positions,
        normalize_first=not arguments.post_norm,
    )
    translator = models.DietTransformerSeq2SeqLM(backbone, preprocessor)
    # The largest rate of the schedule is `scale / sqrt(hidden_dim * warmup_steps)`.
    scale = arguments.learning_rate * (arguments.hidden_dim * arguments.warmup_steps) ** 0.5
    rate = training.InverseSquareRootDecay(arguments.hidden_dim, arguments.warmup_steps, scale)
    translator.compile(
        optimizer=keras.optimizers.Adam(rate, beta_1=0.9, beta_2=0.997, epsilon=1e-9),
        loss=training.SmoothedCategoricalCrossentropy(arguments.label_smoothing),
        jit_compile=keras.config.backend() != "torch",
    )
    return translator


def buckets(arguments):
    shorter = [length for length in LENGTH_BUCKETS if length < arguments.sequence_length]
    return (*shorter, arguments.sequence_length)


# === Step 3: training ===


def train(translator, pairs, validation_pairs, arguments):
    """Train, or continue with the next step, and load the mean of the last epochs."""
    folder = arguments.output_dir
    resume = training.ExactResume(folder / "checkpoints", arguments.save_every)
    history = resume.fit(
        translator,
        token_batches(translator, pairs, arguments),
        epochs=arguments.epochs,
        shuffle=False,
        validation_data=token_batches(translator, validation_pairs, arguments),
        callbacks=[LastEpochs(folder, arguments.averaged_epochs)],
        verbose=1 if sys.stdout.isatty() else 2,
    )
    common.write_history(folder / "history.csv", history)
    training.average_weights(translator, sorted(folder.glob("epoch_*.weights.h5")))


def token_batches(translator, columns, arguments):
    lengths = [
        max(map(len, tokens)) + 1
        for tokens in zip(*map(translator.preprocessor.tokenizer, columns), strict=True)
    ]
    cut = sum(length > arguments.sequence_length for length in lengths)
    if cut:
        print(f"{cut:,} of {len(lengths):,} pairs are cut to {arguments.sequence_length} tokens.")
    return training.TokenBatches(
        tuple(columns),
        lengths,
        length_buckets=buckets(arguments),
        tokens_per_batch=arguments.tokens_per_batch,
        seed=arguments.seed,
        preprocessor=translator.preprocessor,
    )


class LastEpochs(keras.callbacks.Callback):
    """Keep the weights after each of the last epochs."""

    def __init__(self, folder, count):
        super().__init__()
        self.folder, self.count = folder, count

    def on_epoch_end(self, epoch, logs=None):
        path = self.folder / f"epoch_{epoch:04d}.weights.h5"
        temporary = self.folder / "unfinished_epoch.weights.h5"
        self.model.save_weights(temporary)
        os.replace(temporary, path)
        for old in sorted(self.folder.glob("epoch_*.weights.h5"))[: -self.count]:
            old.unlink()


# === Step 4: translation ===


def load_preset(preset, arguments):
    translator = models.DietTransformerSeq2SeqLM.from_preset(str(preset))
    sampler = samplers.BeamSearchSampler(
        min(arguments.num_beams, translator.backbone.vocabulary_size), arguments.length_penalty
    )
    translator.compile(sampler=sampler)
    return translator


def check_sources(translator, sources):
    """Stop if a source is too long. It would be cut for training, but not for translation."""
    preprocessor = translator.preprocessor
    # An end token follows.
    limit = preprocessor.encoder_sequence_length - 1
    for number, tokens in enumerate(preprocessor.tokenizer(sources), start=1):
        if len(tokens) > limit:
            sys.exit(
                f"Line {number} of the text to translate has {len(tokens)} tokens. The model takes "
                f"{limit}. Shorten the line, or train with a larger --sequence-length."
            )


def report_bleu(translator, sources, references, folder):
    """Print BLEU with the signature of its settings, and keep both with the translations."""
    translations = translator.generate(sources, batch_size=32, verbose=1)
    text = "".join(f"{line}\n" for line in translations)
    (folder / "translations.txt").write_text(text, encoding="utf-8")
    metric = sacrebleu.BLEU()
    score = metric.corpus_score(translations, [references])
    print(f"{score}\n{metric.get_signature()}")
    exact = np.mean([one == other for one, other in zip(translations, references, strict=True)])
    results = {"bleu": score.score, "exact": exact, "signature": str(metric.get_signature())}
    (folder / "bleu.json").write_text(json.dumps(results, indent=2) + "\n")
    for source, translation in list(zip(sources, translations, strict=True))[:3]:
        print(f"  {source}\n    {translation}")


def translate_lines(translator, path):
    texts = read_lines(path)
    check_sources(translator, texts)
    translations = translator.generate([text for text in texts if text], batch_size=32)
    # Empty lines stay empty.
    translations = iter(translations)
    for text in texts:
        print(next(translations) if text else "")


def plot_attention(translator, sources, references, path):
    """Draw how much each token of the first translation attends to each token of its source."""
    preprocessor = translator.preprocessor
    for source, reference in zip(sources, references, strict=True):
        # References may be longer than the model.
        if len(preprocessor.tokenizer(reference)) < preprocessor.decoder_sequence_length:
            attention = analysis.cross_attention(translator, source, reference)
            analysis.plot_cross_attention(attention).savefig(path)
            return


if __name__ == "__main__":
    main()
