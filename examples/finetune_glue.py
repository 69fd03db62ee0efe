"""Fine-tune several models on tasks of GLUE, and compare their metrics.

The script trains a classifier for each model, task, learning rate and seed. Warm-up takes a tenth
of the steps, as in Table 7 of the paper. The paper names no optimizer for fine-tuning. AdamW and
linear decay follow BERT. At the end you see a table with GLUE's metrics on the validation split:
Matthews correlation, accuracy, Pearson and Spearman correlation. It shows the learning rate with
the best median over the seeds, among the rates with the most seeds, and the lowest and highest
value at this rate.

    python examples/finetune_glue.py
    python examples/finetune_glue.py --presets runs/diet_abs/preset runs/input/preset \\
        --tasks cola rte stsb --data DATA --learning-rates 1e-4 3e-4 --seeds 0 1 2

Without options, three small random models learn whether the words of a sentence are in order.
Their sentences are made by rule. `--data` is a folder with GLUE's files, `tfds` or `datasets`.
Each finished run adds a line to `runs.csv` in the output folder. To resume after an interruption,
give the same command again: finished runs are not repeated. `results.csv`, `results.md` and
`results.png` summarize the runs with the same options. The script needs `keras-diet[examples]`.
"""

import itertools
import sys
from pathlib import Path

import common
import glue_data
import glue_results
import keras
import numpy as np
from common import make_strategy, positive_int
from glue_results import evaluate
from tqdm import tqdm

from keras_diet import models, pretraining


def main(argv=None):
    arguments = parse_arguments(argv)
    strategy = make_strategy(arguments)
    check_lengths(arguments)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    table = arguments.output_dir / "runs.csv"
    missing = glue_results.missing_runs(table, arguments)
    bar = tqdm(missing, unit="run", disable=not sys.stderr.isatty())
    for (model, task), runs in itertools.groupby(bar, lambda run: (run["model"], run["task"])):
        preset = model if arguments.presets else random_preset(model, arguments)
        splits = load_splits(task, preset, arguments)
        for run in runs:
            rate, seed = run["learning_rate"], run["seed"]
            found = train_and_evaluate(
                preset, glue_data.TASKS[task], splits, rate, seed, arguments, strategy
            )
            text = glue_results.append_run(table, run, found)
            tqdm.write(f"{model}, {task}, {rate}, seed {seed}: {text}")
    rows = glue_results.summarize(glue_results.runs_to_compare(table, arguments))
    glue_results.write_summary(rows, arguments.output_dir)
    print((arguments.output_dir / "results.md").read_text(encoding="utf-8"))


# === Step 1: models and data ===


def random_preset(position_encoding, arguments):
    """Save a small random model, with a vocabulary for the embedded task."""
    length = arguments.sequence_length
    folder = arguments.output_dir / "random" / f"{position_encoding}_{length}"
    if (folder / "config.json").exists():
        return str(folder)
    texts, _ = glue_data.load("embedded", "train", None)
    vocabulary = pretraining.train_wordpiece_vocabulary(texts, 200)
    keras.utils.set_random_seed(0)
    backbone = models.DietBertBackbone(
        vocabulary_size=len(vocabulary),
        num_layers=2,
        num_heads=4,
        hidden_dim=64,
        intermediate_dim=128,
        max_sequence_length=length,
        position_encoding=position_encoding,
        segment_encoding="per-head" if position_encoding.startswith("diet") else "input",
    )
    tokenizer = models.DietBertTokenizer(vocabulary, lowercase=True)
    # The backbone writes config.json, so it comes last: an interrupted save is repeated.
    tokenizer.save_to_preset(str(folder))
    backbone.save_to_preset(str(folder))
    return str(folder)


def check_lengths(arguments):
    """Stop before the first run if a preset only takes shorter sequences."""
    for preset in arguments.presets or ():
        backbone = models.DietBertBackbone.from_preset(preset, load_weights=False)
        if backbone.max_sequence_length < arguments.sequence_length:
            sys.exit(
                f"--sequence-length must be at most {backbone.max_sequence_length} for {preset}. "
                f"Received: {arguments.sequence_length}. For longer sequences use "
                "`keras_diet.models.extend_positions` first."
            )


def make_preprocessor(preset, arguments):
    tokenizer = models.DietBertTokenizer.from_preset(preset)
    return models.DietBertTextClassifierPreprocessor(tokenizer, arguments.sequence_length)


def make_classifier(preset, task, arguments):
    backbone = models.DietBertBackbone.from_preset(preset)
    if arguments.add_segments:
        backbone = models.add_segments(backbone)
    return models.DietBertTextClassifier(
        backbone, num_classes=task.num_classes, preprocessor=make_preprocessor(preset, arguments)
    )


def load_splits(name, preset, arguments):
    """Return inputs and labels of both splits. All runs share them, so texts are tokenized once."""
    preprocessor, splits = make_preprocessor(preset, arguments), {}
    for split in ("train", "validation"):
        most = arguments.examples if split == "train" else None
        texts, labels = glue_data.load(name, split, arguments.data, most)
        inputs = {key: np.asarray(array, "int32") for key, array in preprocessor(texts).items()}
        splits[split] = inputs, labels
    return splits


# === Step 2: a run ===


def train_and_evaluate(preset, task, splits, learning_rate, seed, arguments, strategy=None):
    """Train a classifier and return its metrics on the validation split."""
    keras.utils.set_random_seed(seed)
    inputs, labels = splits["train"]
    steps = arguments.epochs * num_batches(len(labels), arguments)
    with common.scope_of(strategy):
        classifier = make_classifier(preset, task, arguments)
        common.compile_with_adamw(classifier, learning_rate, steps, arguments)
    fit(classifier, inputs, labels, seed, arguments)
    inputs, labels = splits["validation"]
    outputs = predict(classifier, inputs, len(labels), arguments)
    return evaluate(np.asarray(outputs, "float32"), labels, task)


def num_batches(num_examples, arguments):
    """Return the number of steps in an epoch. With a strategy all batches are full."""
    if arguments.strategy == "none":
        return -(-num_examples // arguments.batch_size)
    if num_examples < arguments.batch_size:
        sys.exit(
            f"With --strategy, --batch-size must be at most the number of examples, {num_examples}."
            f" Received: {arguments.batch_size}"
        )
    return num_examples // arguments.batch_size


def fit(classifier, inputs, labels, seed, arguments):
    options = {"epochs": arguments.epochs, "verbose": 0}
    # `keras.Model.fit` shuffles arrays. The `fit` of a KerasHub task does not.
    if arguments.strategy == "none":
        keras.Model.fit(classifier, inputs, labels, batch_size=arguments.batch_size, **options)
        return
    dataset = as_dataset((inputs, labels)).shuffle(len(labels), seed=seed)
    dataset = dataset.batch(arguments.batch_size, drop_remainder=True)
    keras.Model.fit(classifier, dataset, shuffle=False, **options)


def predict(classifier, inputs, num_examples, arguments):
    if arguments.strategy == "none":
        return keras.Model.predict(classifier, inputs, batch_size=arguments.batch_size, verbose=0)
    # The first examples fill the last batch.
    size = -(-num_examples // arguments.batch_size) * arguments.batch_size
    full = {name: np.resize(array, (size, *array.shape[1:])) for name, array in inputs.items()}
    dataset = as_dataset(full).batch(arguments.batch_size, drop_remainder=True)
    return keras.Model.predict(classifier, dataset, verbose=0)[:num_examples]


def as_dataset(arrays):
    """Return arrays as a `tf.data.Dataset`, because a strategy needs batches of static shapes."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(arrays)


# === Options ===


def parse_arguments(argv=None):
    parser = common.make_parser(__doc__.split("\n\n")[0])
    add = parser.add_argument
    add(
        "--presets",
        nargs="+",
        metavar="PRESET",
        help="folders, names or addresses of presets, for example diet_bert_tiny_en. Without them "
        "the script makes a small random model for each --position-encoding",
    )
    add(
        "--position-encoding",
        nargs="+",
        default=["diet_rel", "diet_abs", "input"],
        help="encodings of the random models",
    )
    add(
        "--tasks",
        nargs="+",
        default=["embedded"],
        choices=list(glue_data.TASKS),
        help="tasks to learn. All tasks except embedded need --data",
    )
    add("--data", help="folder with GLUE's files, tfds, or datasets")
    add("--sequence-length", type=positive_int, help="tokens, by default 128, embedded 12")
    add(
        "--learning-rates", nargs="+", type=float, default=[1e-3], help="peak learning rates to try"
    )
    add("--seeds", nargs="+", type=int, default=[0, 1], help="one run for each rate and seed")
    add("--epochs", type=positive_int, default=12, help="passes over the examples")
    add("--batch-size", type=positive_int, default=32, help="examples in a batch")
    add("--warmup-proportion", type=float, default=0.1, help="fraction of the steps to warm up")
    add("--weight-decay", type=float, default=0.01, help="weight decay of AdamW")
    add("--examples", type=positive_int, help="most training examples; default: all")
    add("--add-segments", action="store_true", help="add segments to models without segments")
    common.add_strategy_option(parser)
    folder = Path("runs", "finetune_glue", keras.config.backend())
    add("--output-dir", type=Path, default=folder, help="folder for all results")
    arguments = parser.parse_args(argv)
    if arguments.data is None and set(arguments.tasks) != {"embedded"}:
        parser.error("--tasks other than embedded need --data: a folder, tfds or datasets")
    if arguments.sequence_length is None:
        arguments.sequence_length = 12 if arguments.tasks == ["embedded"] else 128
    common.check_strategy(parser, arguments)
    arguments.backend = keras.config.backend()
    return arguments


if __name__ == "__main__":
    main()
