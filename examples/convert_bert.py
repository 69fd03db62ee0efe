"""Turn a trained BERT into DIET models, see how much of it survives, and heal what does not.

For each of the position encodings asked for: start from BERT (`DietBertBackbone.from_bert`),
compare its outputs on held-out text with those of the original, train it for a few hundred steps to
have these outputs again, compare once more, and save a preset. The table also has the original with
its positions shuffled; a model without positions is one of the encodings.

Without arguments it converts a small BERT with random weights on the language reference that ships
inside every Python, so nothing is downloaded. A run is short and starts from the beginning. The
backend is chosen by `KERAS_BACKEND`.

    python examples/convert_bert.py
    python examples/convert_bert.py a/bert/folder --text wiki/*.txt --validation-text held_out.txt
"""

import argparse
import itertools
import json
import sys
from pathlib import Path

import keras
import keras_hub
import numpy as np

from keras_diet import layers, models, pretraining

AT_INPUT = {"position_encoding": "input", "segment_encoding": "input"}
ENCODINGS = ("diet_abs", "diet_rel", "diet_abs_input", "input", "none")


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
    parser.add_argument(
        "bert",
        nargs="?",
        help="folder of Hugging Face's BERT, or preset of KerasHub's; default: a small random one",
    )
    parser.add_argument(
        "--text",
        nargs="+",
        metavar="FILE",
        help="UTF-8 text files to heal on; blank lines or <doc> tags separate documents. Without "
        "them the embedded Python language reference is used",
    )
    parser.add_argument(
        "--validation-text",
        nargs="+",
        metavar="FILE",
        help="held-out text files; without them the first sequences are held out",
    )
    parser.add_argument(
        "--position-encoding",
        nargs="+",
        default=["diet_abs", "diet_rel", "none"],
        choices=ENCODINGS,
        help="one model is made for each",
    )
    parser.add_argument("--rank", type=positive_int, help="rank of diet_abs; default: head size")
    parser.add_argument(
        "--sharing",
        choices=["none", "head-wise", "layer-wise"],
        help="what shares position parameters; default: as the encoding's paper",
    )
    parser.add_argument(
        "--sequence-length", type=positive_int, default=128, help="tokens in a sequence"
    )
    parser.add_argument("--batch-size", type=positive_int, default=16, help="sequences in a batch")
    parser.add_argument("--steps", type=int, default=200, help="steps of healing, 0 for none")
    parser.add_argument("--learning-rate", type=float, default=2e-4, help="its peak")
    parser.add_argument(
        "--validation-sequences", type=positive_int, default=64, help="sequences to compare on"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random")
    parser.add_argument(
        "--output-dir",
        type=Path,
        default=Path("runs", "convert_bert", keras.config.backend()),
        help="where presets and survival.json go",
    )
    arguments = parser.parse_args(argv)
    if arguments.steps < 0:
        parser.error("--steps must not be negative")
    if arguments.validation_text and not arguments.text:
        parser.error("--validation-text needs --text: the embedded text has held-out sequences")
    return arguments


def embedded_documents():
    """Yield the topics of Python's language reference, each a list of paragraphs."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        paragraphs = (" ".join(text.split()) for text in topics[name].split("\n\n"))
        yield [paragraph for paragraph in paragraphs if paragraph]


def random_bert(sequence_length):
    """Return a small BERT whose positions matter, and its tokenizer."""
    lines = itertools.chain.from_iterable(embedded_documents())
    vocabulary = pretraining.train_wordpiece_vocabulary(lines, 1000, show_progress=False)
    bert = keras_hub.models.BertBackbone(
        vocabulary_size=len(vocabulary),
        num_layers=2,
        num_heads=4,
        hidden_dim=32,
        intermediate_dim=64,
        max_sequence_length=sequence_length,
    )
    bert.set_weights([5 * w if w.ndim > 1 else w for w in bert.get_weights()])
    return bert, models.DietBertTokenizer(vocabulary, lowercase=True)


def load_sequences(arguments, tokenizer):
    """Return the sequences to compare on and those to heal on, both `(count, sequence_length)`."""

    def pack(paths):
        documents = pretraining.read_documents(paths) if paths else embedded_documents()
        return pretraining.pack_sentences(documents, tokenizer, arguments.sequence_length)

    def take(sequences, count):
        return np.array(list(itertools.islice(sequences, count)))

    sequences = pack(arguments.text)
    held_out = pack(arguments.validation_text) if arguments.validation_text else sequences
    validation = take(held_out, arguments.validation_sequences)
    train = take(sequences, arguments.steps * arguments.batch_size)
    if len(validation) < arguments.validation_sequences or (arguments.steps and not len(train)):
        sys.exit("The text is too short. Choose other --text or --validation-sequences.")
    return validation, train


def as_inputs(token_ids, tokenizer):
    return {
        "token_ids": token_ids,
        "segment_ids": np.zeros_like(token_ids),
        "padding_mask": (token_ids != tokenizer.pad_token_id).astype("int32"),
    }


class Distillation(keras.utils.PyDataset):
    """Batches of text with the outputs that the original has for them; padding does not count."""

    def __init__(self, original, token_ids, tokenizer, arguments):
        super().__init__()
        self.original, self.tokenizer = original, tokenizer
        self.steps, self.batch_size = arguments.steps, arguments.batch_size
        # A short text is read several times, in another order.
        generator = np.random.default_rng(arguments.seed)
        repeats = -(-self.steps * self.batch_size // len(token_ids))
        self.token_ids = np.concatenate([generator.permutation(token_ids) for _ in range(repeats)])

    def __len__(self):
        return self.steps

    def __getitem__(self, index):
        rows = self.token_ids[index * self.batch_size : (index + 1) * self.batch_size]
        inputs = as_inputs(rows, self.tokenizer)
        targets = self.original.predict_on_batch(inputs)["sequence_output"]
        return inputs, targets, inputs["padding_mask"].astype("float32")


def heal(backbone, original, token_ids, tokenizer, arguments):
    """Train a backbone to have the outputs of the original."""
    model = keras.Model(backbone.input, backbone.output["sequence_output"])
    schedule = pretraining.WarmupLinearDecay(arguments.learning_rate, arguments.steps, 0.1)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.0)
    model.compile(optimizer=optimizer, loss="mean_squared_error", jit_compile=False)
    verbose = 1 if sys.stdout.isatty() else 2
    model.fit(Distillation(original, token_ids, tokenizer, arguments), verbose=verbose)


def cosines(outputs, expected):
    products = np.sum(outputs * expected, axis=-1)
    norms = np.linalg.norm(outputs, axis=-1) * np.linalg.norm(expected, axis=-1)
    return products / np.maximum(norms, 1e-12)


def survival(backbone, inputs, expected, batch_size):
    """Return the mean cosine of the outputs with the original's, of tokens and of sentences."""
    mask = inputs["padding_mask"][:, :, None]

    def sentences(outputs):
        return np.sum(outputs * mask, axis=1) / np.sum(mask, axis=1)

    outputs = outputs_of(backbone, inputs, batch_size)
    tokens = cosines(outputs, expected)[mask[:, :, 0] == 1]
    return {
        "tokens": float(tokens.mean()),
        "sentences": float(cosines(sentences(outputs), sentences(expected)).mean()),
    }


def outputs_of(backbone, inputs, batch_size):
    return backbone.predict(inputs, batch_size=batch_size, verbose=0)["sequence_output"]


def with_shuffled_positions(bert, seed, **options):
    """Return the original with its positions in another order, all but that of `[CLS]`."""
    backbone = models.DietBertBackbone.from_bert(bert, **AT_INPUT, **options)
    embedding = backbone.input_encoding.position_embedding
    (positions,) = embedding.get_weights()
    order = 1 + np.random.default_rng(seed).permutation(len(positions) - 1)
    embedding.set_weights([positions[[0, *order]]])
    return backbone


def convert(bert, position_encoding, arguments, **options):
    encoding = layers.POSITION_ENCODINGS[position_encoding]
    return models.DietBertBackbone.from_bert(
        bert,
        position_encoding,
        rank=arguments.rank if encoding.has_rank else None,
        sharing=arguments.sharing if arguments.sharing in encoding.sharing_modes else None,
        **options,
    )


def print_table(results):
    print("\nMean cosine with the original's outputs, of tokens and of mean-pooled sequences:")
    print(f"{'':24}{'before healing':>20}{'after':>20}")
    for name, stages in results.items():
        cells = [
            f"{stage['tokens']:.4f} {stage['sentences']:.4f}" if stage else "-"
            for stage in (stages["before"], stages["after"])
        ]
        print(f"{name:24}" + "".join(f"{cell:>20}" for cell in cells))


def main(argv=None):
    arguments = parse_arguments(argv)
    keras.utils.set_random_seed(arguments.seed)
    if arguments.bert is None:
        bert, tokenizer = random_bert(arguments.sequence_length)
    else:
        bert = arguments.bert
        tokenizer = models.DietBertTokenizer.from_bert(bert)
    validation, train = load_sequences(arguments, tokenizer)
    options = {
        "max_sequence_length": arguments.sequence_length,
        "cls_token_id": tokenizer.cls_token_id,
        # The original's outputs are those without dropout.
        "dropout": 0.0,
    }
    original = models.DietBertBackbone.from_bert(bert, **AT_INPUT, **options)
    inputs = as_inputs(validation, tokenizer)
    expected = outputs_of(original, inputs, arguments.batch_size)

    def compare(backbone):
        return survival(backbone, inputs, expected, arguments.batch_size)

    shuffled = with_shuffled_positions(bert, arguments.seed, **options)
    results = {"shuffled positions": {"before": compare(shuffled), "after": None}}
    for name in arguments.position_encoding:
        print(f"\n== {name} ({keras.config.backend()}) ==", flush=True)
        backbone = convert(bert, name, arguments, **options)
        before, after = compare(backbone), None
        if arguments.steps:
            heal(backbone, original, train, tokenizer, arguments)
            after = compare(backbone)
        results[name] = {"before": before, "after": after}
        preset = arguments.output_dir / name / "preset"
        preset.mkdir(parents=True, exist_ok=True)
        backbone.save_to_preset(str(preset))
        tokenizer.save_to_preset(str(preset))
    text = json.dumps(results, indent=1)
    (arguments.output_dir / "survival.json").write_text(text + "\n")
    print_table(results)
    print(f"Presets and survival.json are in {arguments.output_dir}.")


if __name__ == "__main__":
    main()
