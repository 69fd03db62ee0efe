"""The runs of `initial_scores.py`: their text, and the training of a group of copies.

TensorFlow is only needed to pack the text.
"""

import argparse
import functools
import itertools
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

# The study puts the folder of the examples into the path.
from examples.paper import (
    common,
    glue_data,
    glue_options,
    glue_results,
    glue_tasks,
    pretrain_masked_lm,
    pretrain_options,
    study,
)
from examples.paper.copies import Copies, stack
from examples.paper.example_runs import as_options
from examples.paper.initial_scores_scale import ROWS, scale, scaled_sinusoids
from keras_diet import models, pretraining

LENGTHS = (64, 128, 256, 512)
# Positions that are evaluated at each length, padding included, and positions of a batch.
EVALUATED, BATCH = 2**17, 2**12


# === Data ===


def arguments_of(run: dict[str, Any], options: argparse.Namespace) -> argparse.Namespace:
    """Return the options of the example for a run."""
    encoding, *words = ROWS[run["row"]]
    sizes = {"hidden-dim": run["width"], "intermediate-dim": 4 * run["width"]}
    rates = {"learning-rate": run["learning_rate"], "seed": run["seed"]}
    words += map(str, as_options({**options.recipe, **sizes, **rates}))
    words += ["--text", *options.text, "--validation-text", *options.validation_text]
    folder = options.runs
    if "--document-masks" in words:
        # Its packed text differs: each document begins with `[CLS]`.
        folder = folder / "document_masks"
    words += ["--output-dir", str(folder)]
    words += ["--initial-score-stddev", "bert"]
    return pretrain_options.parse_arguments(["--position-encoding", encoding, *words])


def glue_arguments(options: argparse.Namespace) -> argparse.Namespace:
    words = ["--tasks", *study.TASKS, "--data", options.glue, *map(str, as_options(study.GLUE))]
    return glue_options.parse_arguments([*words, "--learning-rates", str(study.GLUE_LEARNING_RATE)])


class Vocabulary:
    """What `masked_lm_dataset` needs of a tokenizer, also where TensorFlow is not installed."""

    def __init__(self, path: Path) -> None:
        self.tokens = path.read_text(encoding="utf-8").splitlines()
        names = ("[PAD]", "[MASK]", "[SEP]", "[CLS]")
        self.special_token_ids = list(map(self.tokens.index, names))
        self.pad_token_id, self.mask_token_id = self.special_token_ids[:2]
        self.sep_token_id, self.cls_token_id = self.special_token_ids[2:]

    def vocabulary_size(self) -> int:
        return len(self.tokens)


def pack(run: dict[str, Any], options: argparse.Namespace) -> None:
    """Write the vocabulary, the sequences for training, longer ones, and the texts of GLUE."""
    arguments = arguments_of(run, options)
    folder = arguments.output_dir
    paths = {length: folder / f"evaluation_{length}.npy" for length in LENGTHS}
    glue = {name: options.runs / f"glue_{name}.npz" for name in study.TASKS if options.glue}
    if all(path.exists() for path in (*paths.values(), *glue.values())):
        return
    folder.mkdir(parents=True, exist_ok=True)
    script = pretrain_masked_lm
    tokenizer = script.load_tokenizer(arguments)
    script.load_sequences(arguments, tokenizer)
    script.pack(arguments, tokenizer, "validation", script.validation_documents(arguments))
    for length, path in paths.items():
        if not path.exists():
            texts = pretraining.read_documents(options.validation_text)
            sequences = pretraining.pack_sentences(
                texts, tokenizer, length, arguments.document_masks
            )
            np.save(path, np.stack(list(itertools.islice(sequences, EVALUATED // length))))
    for name, path in glue.items():
        if not path.exists():
            np.savez_compressed(path, **glue_arrays(name, tokenizer, glue_arguments(options)))


def glue_arrays(name: str, tokenizer: Any, arguments: argparse.Namespace) -> dict[str, np.ndarray]:
    """Return the token ids and labels of both splits of a task."""
    length = arguments.sequence_length
    preprocessor = models.DietBertTextClassifierPreprocessor(tokenizer, length)
    arrays = {}
    for split in ("train", "validation"):
        most = arguments.examples if split == "train" else None
        texts, labels = glue_data.load(name, split, arguments.data, most)
        inputs = preprocessor(texts)
        arrays |= {f"{split}/{key}": np.asarray(value, "int32") for key, value in inputs.items()}
        arrays[f"{split}/labels"] = np.asarray(labels)
    return arrays


@functools.cache
def masked_batches(
    path: Path, seeds: tuple[int, ...], start: int, stop: int, **options: Any
) -> tuple:
    """Return batches for copies, of the shape `(steps, seeds, batch_size, ...)`."""
    vocabulary = Vocabulary(path.with_name("vocabulary.txt"))
    sequences = np.load(path, mmap_mode="r")
    datasets = [
        pretraining.masked_lm_dataset(sequences, vocabulary, seed=seed, **options) for seed in seeds
    ]
    stop = min(stop, *map(len, datasets))
    return stack([stack([dataset[step] for dataset in datasets]) for step in range(start, stop)])


# === Runs ===


def train_on_device(group: list[dict[str, Any]], options: argparse.Namespace) -> list:
    """Train a group. A GPU would compile each small operation, so it gets the copies only."""
    with jax.default_device(jax.devices("cpu")[0]):
        return train(group, options)


def train(group: list[dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train the runs of a group, and return them with their results."""
    keras.backend.clear_session()
    arguments = arguments_of(group[0], options)
    folder = arguments.output_dir
    vocabulary = Vocabulary(folder / "vocabulary.txt")
    seeds = tuple(dict.fromkeys(run["seed"] for run in group))
    batches = functools.partial(
        masked_batches,
        seeds=seeds,
        batch_size=arguments.batch_size,
        num_segments=2 if arguments.document_segments else 1,
        document_masks=arguments.document_masks,
    )
    interval = arguments.validation_interval
    held_out = functools.partial(batches, start=0, shuffle=False)
    validation = held_out(folder / "validation.npy", stop=arguments.validation_batches)
    copies = None
    encoding = ROWS[group[0]["row"]][0]
    if encoding == "sinusoidal":
        encoding = scaled_sinusoids(group[0])
    for seed, runs in itertools.groupby(group, lambda run: run["seed"]):
        keras.utils.set_random_seed(seed)
        masked_lm = pretrain_masked_lm.build_model(arguments, encoding, vocabulary)
        weights = masked_lm.get_weights()
        copies = copies or Copies(masked_lm, one_batch(validation))
        for run in runs:
            masked_lm.set_weights(weights)
            run["first_scores"] = scale(masked_lm.backbone, run)
            copies.add(masked_lm, data=seeds.index(seed))
    copies.start()
    losses = []
    for step in range(0, arguments.steps, interval):
        training = batches(folder / "train.npy", start=step, stop=step + interval, repeat=True)
        copies.fit(training)
        losses.append(copies.evaluate(validation)["loss"])
    for index, run in enumerate(group):
        run["losses"] = [each[index] for each in losses]
        run["lengths"] = {}
    if options.lengths and group[0]["row"] != "sinusoidal":
        evaluate_lengths(copies, masked_lm, group, held_out, arguments)
    if options.glue:
        finetune(copies, masked_lm, group, options)
    return group


def one_batch(batches: Any) -> Any:
    """Return the first batch of the first seed."""
    inputs, *others = batches
    return {name: array[0, 0] for name, array in inputs.items()}, *(each[0, 0] for each in others)


def evaluate_lengths(copies, masked_lm, group, held_out, arguments):
    """Add the losses of longer sequences to the runs. Absolute positions repeat."""
    longer = None
    for length in LENGTHS:
        batches = held_out(
            arguments.output_dir / f"evaluation_{length}.npy",
            stop=EVALUATED // BATCH,
            batch_size=BATCH // length,
        )
        if length > arguments.sequence_length and longer is None:
            for index in range(len(group)):
                copies.assign(index, masked_lm)
                model = models.extend_positions(masked_lm, max(LENGTHS), "repeat")
                longer = longer or Copies(model, one_batch(batches))
                longer.add(model, data=copies.data[index])
            longer.start()
        losses = (longer or copies).evaluate(batches)["loss"]
        for run, loss in zip(group, losses, strict=True):
            run["lengths"][str(length)] = loss


def finetune(copies, masked_lm, group, options):
    """Fine-tune all copies on each task of GLUE, and add the metrics to the runs."""
    arguments = glue_arguments(options)
    for name in study.TASKS:
        task = glue_tasks.TASKS[name]
        splits = np.load(options.runs / f"glue_{name}.npz")
        inputs, labels = split_of(splits, "train")
        per_epoch = len(labels) // arguments.batch_size
        classifiers = None
        for index, run in enumerate(group):
            # Only fine-tuning trains the pooler.
            masked_lm.backbone.pooled_dense.trainable = False
            copies.assign(index, masked_lm)
            masked_lm.backbone.pooled_dense.trainable = True
            keras.utils.set_random_seed(run["seed"])
            classifier = models.DietBertTextClassifier(masked_lm.backbone, task.num_classes)
            common.compile_for_training(
                classifier, arguments.learning_rates[0], arguments.epochs * per_epoch, arguments
            )
            if classifiers is None:
                first = {key: array[: arguments.batch_size] for key, array in inputs.items()}
                classifiers = Copies(classifier, (first, labels[: arguments.batch_size]))
            classifiers.add(classifier, data=copies.data[index])
        classifiers.start()
        seeds = dict.fromkeys(run["seed"] for run in group)
        generators = [np.random.default_rng(seed) for seed in seeds]
        for _ in range(arguments.epochs):
            shape = per_epoch, len(generators), arguments.batch_size
            orders = [each.permutation(len(labels))[: shape[0] * shape[2]] for each in generators]
            order = np.stack([each.reshape(shape[0], shape[2]) for each in orders], 1)
            classifiers.fit(({key: array[order] for key, array in inputs.items()}, labels[order]))
        inputs, labels = split_of(splits, "validation")
        # The first examples fill the last batch.
        size = -(-len(labels) // 128)
        full = {
            key: np.resize(array, (size, 128, *array.shape[1:])) for key, array in inputs.items()
        }
        for run, outputs in zip(group, classifiers.predict(full), strict=True):
            found = glue_results.evaluate(outputs[: len(labels)], labels, task)
            run.setdefault("glue", {})[name] = found


def split_of(splits, name):
    """Return the inputs and labels of a split of a task."""
    arrays = {
        key.removeprefix(f"{name}/"): array
        for key, array in splits.items()
        if key.startswith(f"{name}/")
    }
    return arrays, arrays.pop("labels")
