"""Turn a trained BERT into DIET models, measure what changes, and train to repair it.

For each position encoding the script converts BERT with `DietBertBackbone.from_bert`. It compares
the outputs on held-out text with BERT's outputs. Then it heals the model: it trains for a few
hundred steps to get BERT's outputs back. It compares again and saves a preset. At the end you see a
table of these similarities. Two rows show what positions are worth to BERT: its positions shuffled,
and the encoding `none`. Other encoders of Hugging Face, such as MPNet, take the place of BERT too.

Without arguments the script converts a small random BERT on the language reference that ships with
every Python, so it downloads nothing. A run is short and always starts from the beginning.
`KERAS_BACKEND` chooses the backend.

    python -m examples.paper.convert_bert
    python -m examples.paper.convert_bert a/bert/folder --text wiki/*.txt \\
        --validation-text held_out.txt
"""

import functools
import itertools
import json
import sys
from pathlib import Path

import keras
import keras_hub
import numpy as np

from examples.paper import common
from examples.paper.common import positive_int
from keras_diet import models, pretraining, training
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS

AT_INPUT = {"position_encoding": "input", "segment_encoding": "input"}
ENCODINGS = ("diet_abs", "diet_rel", "diet_abs_input", "input", "none")


def main(argv=None):
    arguments = parse_arguments(argv)
    keras.utils.set_random_seed(arguments.seed)
    if arguments.bert is None:
        bert, tokenizer = random_bert(arguments.sequence_length)
        original = models.DietBertBackbone.from_bert(bert, **AT_INPUT, dropout=0.0)
    else:
        bert = arguments.bert
        original, tokenizer = load_original(bert)
    validation, train = load_sequences(arguments, tokenizer)
    options = {
        "max_sequence_length": arguments.sequence_length,
        "cls_token_id": tokenizer.cls_token_id,
        "dropout": 0.0,
    }
    inputs = as_inputs(validation, tokenizer)
    expected = outputs_of(original, inputs, arguments.batch_size)
    compare = functools.partial(
        survival, inputs=inputs, expected=expected, batch_size=arguments.batch_size
    )
    results = {}
    if original.input_encoding is not None and original.input_encoding.position_embedding:
        shuffled = with_shuffled_positions(original, arguments.sequence_length, arguments.seed)
        results["shuffled positions"] = {"before": compare(shuffled), "after": None}
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


# === Step 1: BERT and text ===


def random_bert(sequence_length):
    """Return a small BERT whose outputs depend on positions, and its tokenizer."""
    lines = itertools.chain.from_iterable(common.read_text(None))
    vocabulary = pretraining.train_wordpiece_vocabulary(lines, 1000, show_progress=False)
    bert = keras_hub.models.BertBackbone(
        vocabulary_size=len(vocabulary),
        num_layers=2,
        num_heads=4,
        hidden_dim=32,
        intermediate_dim=64,
        max_sequence_length=sequence_length,
    )
    # With its small initial weights the positions would hardly matter.
    bert.set_weights([5 * w if w.ndim > 1 else w for w in bert.get_weights()])
    return bert, models.DietBertTokenizer(vocabulary, lowercase=True)


def load_original(bert):
    """Return a trained encoder, without dropout, and its tokenizer."""
    folder = Path(bert)
    if not folder.is_dir() or (folder / "metadata.json").is_file():
        # A preset of KerasHub.
        original = models.DietBertBackbone.from_bert(bert, **AT_INPUT, dropout=0.0)
    else:
        original = models.DietBertBackbone.from_hugging_face(bert, dropout=0.0)
        if (folder / "tokenizer.json").is_file():
            return original, models.HuggingFaceTokenizer.from_hugging_face(bert)
    return original, models.DietBertTokenizer.from_bert(bert)


def load_sequences(arguments, tokenizer):
    """Return sequences to compare on and sequences to heal on, both `(count, sequence_length)`."""

    def pack(paths):
        documents = common.read_text(paths)
        return pretraining.pack_sentences(documents, tokenizer, arguments.sequence_length)

    def take(sequences, count):
        return np.array(list(itertools.islice(sequences, count)))

    sequences = pack(arguments.text)
    held_out = pack(arguments.validation_text) if arguments.validation_text else sequences
    validation = take(held_out, arguments.validation_sequences)
    train = take(sequences, arguments.steps * arguments.batch_size)
    if len(validation) < arguments.validation_sequences or (arguments.steps and not len(train)):
        sys.exit("The text is too short. Choose another --text or fewer --validation-sequences.")
    return validation, train


def as_inputs(token_ids, tokenizer):
    return {
        "token_ids": token_ids,
        "segment_ids": np.zeros_like(token_ids),
        "padding_mask": (token_ids != tokenizer.pad_token_id).astype("int32"),
    }


# === Step 2: convert and compare ===


def convert(bert, position_encoding, arguments, **options):
    encoding = POSITION_ENCODINGS[position_encoding]
    return models.DietBertBackbone.from_bert(
        bert,
        position_encoding,
        rank=arguments.rank if encoding.takes("rank") else None,
        sharing=arguments.sharing if arguments.sharing in encoding.sharing_modes else None,
        **options,
    )


def with_shuffled_positions(original, length, seed):
    """Return the original with its positions in another order, except that of the first token."""
    shuffled = models.DietBertBackbone.from_config(original.get_config())
    shuffled.set_weights(original.get_weights())
    embedding = shuffled.input_encoding.position_embedding
    (positions,) = embedding.get_weights()
    # RoBERTa and its relatives have rows for padding first.
    second = 1 + (original.first_position or 0)
    order = np.arange(len(positions))
    order[second : second + length - 1] = np.random.default_rng(seed).permutation(
        order[second : second + length - 1]
    )
    embedding.set_weights([positions[order]])
    return shuffled


def outputs_of(backbone, inputs, batch_size):
    return backbone.predict(inputs, batch_size=batch_size, verbose=0)["sequence_output"]


def cosines(outputs, expected):
    products = np.sum(outputs * expected, axis=-1)
    norms = np.linalg.norm(outputs, axis=-1) * np.linalg.norm(expected, axis=-1)
    return products / np.maximum(norms, 1e-12)


def survival(backbone, inputs, expected, batch_size):
    """Return the mean cosine with BERT's outputs, for tokens and for mean-pooled sequences."""
    mask = inputs["padding_mask"][:, :, None]

    def pooled(outputs):
        return np.sum(outputs * mask, axis=1) / np.sum(mask, axis=1)

    outputs = outputs_of(backbone, inputs, batch_size)
    tokens = cosines(outputs, expected)[mask[:, :, 0] == 1]
    sentences = cosines(pooled(outputs), pooled(expected))
    return {"tokens": float(tokens.mean()), "sentences": float(sentences.mean())}


def print_table(results):
    print("\nMean cosine with BERT's outputs, for tokens and for mean-pooled sequences:")
    print(f"{'':24}{'before healing':>20}{'after':>20}")
    for name, stages in results.items():
        cells = [
            f"{stage['tokens']:.4f} {stage['sentences']:.4f}" if stage else "-"
            for stage in (stages["before"], stages["after"])
        ]
        print(f"{name:24}" + "".join(f"{cell:>20}" for cell in cells))


# === Step 3: heal ===


class Distillation(keras.utils.PyDataset):
    """Batches of text with BERT's outputs as targets. Padding has no weight."""

    def __init__(self, original, token_ids, tokenizer, arguments):
        super().__init__()
        self.original, self.tokenizer = original, tokenizer
        self.steps, self.batch_size = arguments.steps, arguments.batch_size
        # A short text is repeated, each time in another order.
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
    """Train a backbone to give the outputs of the original."""
    model = keras.Model(backbone.input, backbone.output["sequence_output"])
    schedule = training.WarmupLinearDecay(arguments.learning_rate, arguments.steps, 0.1)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.0)
    model.compile(optimizer=optimizer, loss="mean_squared_error", jit_compile=False)
    verbose = 1 if sys.stdout.isatty() else 2
    model.fit(Distillation(original, token_ids, tokenizer, arguments), verbose=verbose)


# === Options ===


def parse_arguments(argv=None):
    parser = common.make_parser(__doc__.split("\n\n")[0])
    add = parser.add_argument
    bert = "folder of a Hugging Face BERT, or a KerasHub preset; default: a small random BERT"
    add("bert", nargs="?", help=bert)
    common.add_text_options(parser, held_out="the first sequences are")
    add(
        "--position-encoding",
        nargs="+",
        default=["diet_abs", "diet_rel", "none"],
        choices=ENCODINGS,
        help="convert BERT to each of these encodings",
    )
    add("--rank", type=positive_int, help="rank of diet_abs; default: head size")
    add(
        "--sharing",
        choices=["none", "head-wise", "layer-wise"],
        help="share position parameters; default: none",
    )
    add("--sequence-length", type=positive_int, default=128, help="tokens in a sequence")
    add("--batch-size", type=positive_int, default=16, help="sequences in a batch")
    add("--steps", type=int, default=200, help="steps of healing. 0 skips it")
    add("--learning-rate", type=float, default=2e-4, help="peak learning rate")
    add("--validation-sequences", type=positive_int, default=64, help="sequences to compare on")
    add("--seed", type=int, default=0, help="seed of all random numbers")
    common.add_output_option(add, "convert_bert", "folder for presets and survival.json")
    arguments = parser.parse_args(argv)
    if arguments.steps < 0:
        parser.error(f"--steps must not be negative. Received: {arguments.steps}")
    common.check_text_options(parser, arguments)
    return arguments


if __name__ == "__main__":
    main()
