"""Fine-tune several models on tasks of GLUE, and compare their metrics.

The script trains a classifier for each model, task, learning rate and seed. Warm-up takes a tenth
of the steps, as in Table 7 of the paper. The paper names no optimizer for fine-tuning. AdamW and
linear decay follow BERT. At the end you see a table with GLUE's metrics on the validation splits.
It shows the learning rate with the best median over the seeds, among the rates with the most seeds,
and the lowest and highest value at this rate. For models with the seven results of the paper's
tables, it also shows their mean.

    python -m examples.paper.finetune_glue
    python -m examples.paper.finetune_glue --presets runs/diet_abs/preset runs/input/preset \\
        --tasks cola rte stsb --data DATA --learning-rates 1e-4 3e-4 --seeds 0 1 2

This is the paper's protocol: the best checkpoint of each run, and the median of five runs.

    python -m examples.paper.finetune_glue --presets PRESET --segment-encoding per-head input \\
        --tasks mnli qqp qnli sst2 cola stsb --data DATA --learning-rates 1e-5 2e-5 3e-5 4e-5 \\
        --epochs 5 --checkpoint-interval 3500 --seeds 0 1 2 3 4

Without options, three small random models learn whether the words of a sentence are in order.
Their sentences are made by rule. `--data` is a folder with GLUE's files, `tfds` or `datasets`.
Each finished run adds a line to `runs.csv` in the output folder. To resume after an interruption,
give the same command again: finished runs are not repeated, and the run that was interrupted
continues at its last checkpoint. `results.csv`, `results.md` and `results.png` summarize the runs
with the same options. The script needs `keras-diet[examples]`.
"""

import itertools
import json
import os
import sys

import keras
import keras_hub
import numpy as np
from tqdm import tqdm

from examples.paper import common, glue_data, glue_results, run_table
from examples.paper.common import make_strategy
from examples.paper.glue_options import parse_arguments
from examples.paper.glue_results import evaluate
from examples.paper.glue_tasks import TASKS, result_name
from keras_diet import models, pretraining, training


def main(argv=None):
    arguments = parse_arguments(argv)
    strategy = make_strategy(arguments)
    check_presets(arguments)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    table = arguments.output_dir / "runs.csv"
    missing = glue_results.missing_runs(table, arguments)
    bar = tqdm(missing, unit="run", disable=not sys.stderr.isatty())
    for (model, task), runs in itertools.groupby(bar, lambda run: (run["model"], run["task"])):
        preset = model if arguments.presets else random_preset(model, arguments)
        splits = load_splits(task, preset, arguments)
        for run in runs:
            folder = glue_results.TABLE.checkpoints(table, run)
            found = train_and_evaluate(
                preset, TASKS[task], splits, run, arguments, folder, strategy
            )
            text = glue_results.TABLE.append(table, run, found)
            tqdm.write(
                ", ".join(str(run[name]) for name in glue_results.TABLE.varied) + f": {text}"
            )
    rows = glue_results.summarize(glue_results.runs_to_compare(table, arguments))
    run_table.write_summary(rows, arguments.output_dir, glue_results.means(rows))
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


def check_presets(arguments):
    """Stop before the first run if a preset takes shorter sequences, or has segments already."""
    for preset in arguments.presets or ():
        backbone = models.DietBertBackbone.from_preset(preset, load_weights=False)
        if backbone.max_sequence_length < arguments.sequence_length:
            sys.exit(
                f"--sequence-length must be at most {backbone.max_sequence_length} for {preset}. "
                f"Received: {arguments.sequence_length}. For longer sequences use "
                "`keras_diet.models.extend_positions` first."
            )
        if backbone.segment_encoding != "none" and arguments.segment_encoding != ["unchanged"]:
            sys.exit(
                f"--segment-encoding adds segments, but {preset} has segments already. Received: "
                f"{' '.join(arguments.segment_encoding)}. Leave the option out for this preset."
            )


def make_preprocessor(preset, arguments):
    tokenizer = keras_hub.models.Tokenizer.from_preset(preset)
    return models.DietBertTextClassifierPreprocessor(tokenizer, arguments.sequence_length)


def make_classifier(preset, task, segments, arguments):
    backbone = models.DietBertBackbone.from_preset(preset, recompute=arguments.recompute)
    if segments != "unchanged":
        backbone = models.add_segments(backbone, segment_encoding=segments)
    # The texts are tokenized once for all runs, so the classifier gets token ids.
    return models.DietBertTextClassifier(backbone, num_classes=task.num_classes)


def load_splits(name, preset, arguments):
    """Return inputs and labels of all splits. All runs share them, so texts are tokenized once."""
    preprocessor, splits = make_preprocessor(preset, arguments), {}
    for split in ("train", *TASKS[name].validation):
        most = arguments.examples if split == "train" else None
        texts, labels = glue_data.load(name, split, arguments.data, most)
        inputs = {key: np.asarray(array, "int32") for key, array in preprocessor(texts).items()}
        splits[split] = inputs, labels
    return splits


# === Step 2: a run ===


def train_and_evaluate(preset, task, splits, run, arguments, folder, strategy=None):
    """Train a classifier, and return the best value of each metric at its evaluations.

    If there are checkpoints in the folder, the training continues there.
    """
    keras.utils.set_random_seed(run["seed"])
    inputs, labels = splits["train"]
    steps = arguments.epochs * num_batches(len(labels), arguments)
    with common.scope_of(strategy):
        classifier = make_classifier(preset, task, run["segments"], arguments)
        common.compile_for_training(classifier, run["learning_rate"], steps, arguments)
    evaluations = Evaluations(
        lambda model: evaluate_splits(model, task, splits, arguments),
        (arguments.checkpoint_interval or steps) * arguments.accumulation_steps,
        steps,
        folder / "evaluations.json",
    )
    fit(classifier, inputs, labels, run["seed"], arguments, evaluations, folder)
    found = evaluations.read().values()
    return {name: max(values[name] for values in found) for name in task.results}


class Evaluations(keras.callbacks.Callback):
    """Evaluate the model every few steps, and after the last step.

    Args:
        evaluate: Function of the model. It returns a dictionary.
        interval: Number of steps from one evaluation to the next.
        steps: Number of steps of the training.
        path: The file for the results, which a training that continues also needs.
    """

    def __init__(self, evaluate, interval, steps, path):
        super().__init__()
        self.evaluate, self.interval, self.steps, self.path = evaluate, interval, steps, path
        self.first_step = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.first_step = epoch * self.params["steps"]

    def on_train_batch_end(self, batch, logs=None):
        step = self.first_step + batch + 1
        if step % self.interval == 0 or step == self.steps:
            # On JAX, `self.model` gives the values of the last step to the variables.
            results = {**self.read(), str(step): self.evaluate(self.model)}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = self.path.with_suffix(".unfinished")
            unfinished.write_text(json.dumps(results))
            os.replace(unfinished, self.path)

    def read(self):
        """Return the results by step."""
        return json.loads(self.path.read_text()) if self.path.exists() else {}


def evaluate_splits(classifier, task, splits, arguments):
    """Return the metrics on all validation splits of a task."""
    found = {}
    for split in task.validation:
        inputs, labels = splits[split]
        outputs = predict(classifier, inputs, len(labels), arguments)
        values = evaluate(np.asarray(outputs, "float32"), labels, task)
        found |= {result_name(name, split): value for name, value in values.items()}
    return found


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


def fit(classifier, inputs, labels, seed, arguments, evaluations, folder):
    options = {"epochs": arguments.epochs, "verbose": 0}
    if arguments.strategy == "none":
        resume = training.ExactResume(folder, arguments.save_every)
        options |= {"batch_size": arguments.batch_size, "callbacks": [evaluations]}
        resume.fit(classifier, inputs, labels, **options)
        return
    # The hosts of a TPU can read this dataset themselves. It cannot continue within an epoch.
    dataset = as_dataset((inputs, labels)).shuffle(len(labels), seed=seed)
    dataset = dataset.batch(arguments.batch_size, drop_remainder=True)
    keras.Model.fit(classifier, dataset, shuffle=False, callbacks=[evaluations], **options)


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


if __name__ == "__main__":
    main()
