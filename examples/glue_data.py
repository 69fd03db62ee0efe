"""Four tasks of GLUE, from a folder, TFDS, or Hugging Face `datasets`, and a task without data.

A folder holds the files as GLUE distributes them (`CoLA/train.tsv`, `SST-2/train.tsv`, ...) or as
the authors of the tasks do (`cola/in_domain_train.tsv`, `stsb/sts-train.tsv`, ...).

A split is a pair `(texts, labels)`. `texts` is a list of strings, or a pair of lists for tasks with
two sentences. `labels` is an array of class numbers or scores. The task `"embedded"` is small and
needs no data: a rule makes its sentences.
"""

import csv
import dataclasses
import itertools
import random
from pathlib import Path

import numpy as np


@dataclasses.dataclass(frozen=True)
class Files:
    """Where to find a task in a folder.

    Attributes:
        train: The training files, relative to the folder.
        validation: The validation files, relative to the folder.
        fields: The columns of the texts, then the column of the label.
        has_header: Whether the first line names the columns.
    """

    train: tuple
    validation: tuple
    fields: tuple
    has_header: bool = True


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """How to read a task, and what a model predicts.

    Attributes:
        num_classes: Number of classes, or 1 for scores.
        metrics: Names of the official metrics. The first one chooses the learning rate.
        columns: The columns of the texts, then the column of the label, in TFDS and `datasets`.
        files: `Files` of each distribution. The first one that exists is read.
        classes: The labels in the files, in the order of the classes, or `None` for numbers.
    """

    num_classes: int
    metrics: tuple
    columns: tuple
    files: tuple
    classes: tuple | None = None


TASKS = {
    "cola": GlueTask(
        num_classes=2,
        metrics=("matthews",),
        columns=("sentence", "label"),
        files=(
            Files(("CoLA/train.tsv",), ("CoLA/dev.tsv",), fields=(3, 1), has_header=False),
            Files(
                ("cola/in_domain_train.tsv",),
                ("cola/in_domain_dev.tsv", "cola/out_of_domain_dev.tsv"),
                fields=(3, 1),
                has_header=False,
            ),
        ),
    ),
    "sst2": GlueTask(
        num_classes=2,
        metrics=("accuracy",),
        columns=("sentence", "label"),
        files=(
            Files(("SST-2/train.tsv",), ("SST-2/dev.tsv",), fields=(0, 1)),
            # In this copy the 872 sentences of GLUE's validation split are in `test`.
            Files(("sst2_glue/train.tsv",), ("sst2_glue/test.tsv",), fields=(0, 1)),
        ),
    ),
    "rte": GlueTask(
        num_classes=2,
        metrics=("accuracy",),
        columns=("sentence1", "sentence2", "label"),
        files=(
            Files(("RTE/train.tsv",), ("RTE/dev.tsv",), fields=(1, 2, 3)),
            Files(("rte/train.tsv",), ("rte/dev.tsv",), fields=(1, 2, 3)),
        ),
        classes=("entailment", "not_entailment"),
    ),
    "stsb": GlueTask(
        num_classes=1,
        metrics=("pearson", "spearman"),
        columns=("sentence1", "sentence2", "label"),
        files=(
            Files(("STS-B/train.tsv",), ("STS-B/dev.tsv",), fields=(7, 8, 9)),
            Files(("stsb/sts-train.tsv",), ("stsb/sts-dev.tsv",), (5, 6, 4), has_header=False),
        ),
    ),
    "embedded": GlueTask(
        num_classes=2,
        metrics=("matthews", "accuracy"),
        columns=(),
        files=(),
    ),
}


def load(name, split, source, most=None):
    """Return the texts and labels of a split.

    Args:
        name: One of `TASKS`.
        split: `"train"` or `"validation"`.
        source: A folder, `"tfds"` (needs `tensorflow-datasets`) or `"datasets"` (needs Hugging
            Face's `datasets`). The task `"embedded"` ignores it.
        most: The largest number of examples, or `None` for all.
    """
    task = TASKS[name]
    if name == "embedded":
        rows = _from_rule(split)
    elif source == "tfds":
        rows = _from_tfds(name, split, task)
    elif source == "datasets":
        rows = _from_datasets(name, split, task)
    else:
        rows = _from_files(Path(source), split, task)
    rows = list(itertools.islice(rows, most))
    if not rows:
        raise ValueError(f"The {split} split of {name} in {source} has no examples.")
    *texts, labels = (list(column) for column in zip(*rows, strict=True))
    labels = np.array(labels, dtype="float32" if task.num_classes == 1 else "int32")
    return (texts[0] if len(texts) == 1 else tuple(texts)), labels


def _from_files(folder, split, task):
    for files in task.files:
        if (folder / getattr(files, split)[0]).exists():
            break
    else:
        names = " and ".join(str(folder / getattr(files, split)[0]) for files in task.files)
        raise ValueError(
            f"{names} are missing. Pass a folder with one of these files, or pass `tfds` or "
            "`datasets` to load the task from there."
        )
    for name in getattr(files, split):
        with (folder / name).open(encoding="utf-8", newline="") as file:
            lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            for number, line in enumerate(lines, start=1):
                if number > 1 or not files.has_header:
                    yield _example(line, files, task, f"{folder / name}, line {number}")


def _example(line, files, task, place):
    try:
        *texts, label = (line[field] for field in files.fields)
        return *texts, float(label) if task.classes is None else task.classes.index(label)
    except (IndexError, ValueError) as error:
        raise ValueError(f"{place} is not an example of the task. Received: {line}") from error


def _from_tfds(name, split, task):
    import tensorflow_datasets as tfds

    for example in tfds.as_numpy(tfds.load(f"glue/{name}", split=split)):
        *texts, label = (example[column] for column in task.columns)
        yield (*(text.decode() for text in texts), label)


def _from_datasets(name, split, task):
    import datasets

    for example in datasets.load_dataset("nyu-mll/glue", name, split=split):
        yield tuple(example[column] for column in task.columns)


def _from_rule(split):
    """Yield sentences of a toy language, with label 1 if their words are in order, else 0.

    Both kinds of sentences have the same words, so a model without positions cannot learn the task.
    """
    rng = random.Random({"train": 1, "validation": 2}[split])
    words = {
        "the": ("the", "a", "every"),
        "adjective": ("old", "red", "small", "quiet"),
        "noun": ("cat", "bird", "fox", "child"),
        "verb": ("sees", "likes", "follows", "hears"),
    }
    order = ("the", "adjective", "noun", "verb", "the", "noun")
    for _ in range({"train": 2000, "validation": 400}[split]):
        sentence = [rng.choice(words[kind]) for kind in order]
        label = rng.randrange(2)
        if not label:
            first = rng.randrange(len(sentence) - 1)
            sentence[first : first + 2] = reversed(sentence[first : first + 2])
        yield " ".join(sentence), label
