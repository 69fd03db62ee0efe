"""Four tasks of GLUE, from a folder, TFDS, or Hugging Face `datasets`.

A folder has the files as GLUE distributes them (`CoLA/train.tsv`, `SST-2/train.tsv`, ...), or as
those who made the tasks do (`cola/in_domain_train.tsv`, `stsb/sts-train.tsv`, ...).

Each split is `(texts, labels)`: `texts` a list of strings, or a pair of lists for tasks of two
sentences; `labels` an array of class numbers, or of scores. `"embedded"` is a small task of our
own, made by rule, which needs no data.
"""

import csv
import dataclasses
import random
from pathlib import Path

import numpy as np


@dataclasses.dataclass(frozen=True)
class Files:
    """Where a task is in a folder.

    Attributes:
        train: Its training files, below the folder of the data.
        validation: Those of the validation split.
        fields: The columns of the texts and of the label.
        has_header: Whether the first line names the columns.
    """

    train: tuple
    validation: tuple
    fields: tuple
    has_header: bool = True


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """How to read a task and what it predicts.

    Attributes:
        num_classes: Number of classes; 1 for scores.
        metrics: Names of the official metrics, the first to choose a learning rate by.
        columns: The names of the texts and of the label, in TFDS and `datasets`.
        files: `Files` of each distribution, in the order in which they are looked for.
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
            # A copy that has the 872 sentences of GLUE's validation split in `test`.
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


def load(name, split, source):
    """Return the texts and labels of a split.

    Args:
        name: One of `TASKS`.
        split: `"train"` or `"validation"`.
        source: A folder, `"tfds"` (needs `tensorflow-datasets`) or `"datasets"` (needs Hugging
            Face's `datasets`). The embedded task needs none.
    """
    task = TASKS[name]
    if name == "embedded":
        return embedded_examples(split)
    if source == "tfds":
        rows = _from_tfds(name, split, task)
    elif source == "datasets":
        rows = _from_datasets(name, split, task)
    else:
        rows = _from_files(Path(source), split, task)
    rows = list(rows)
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
            f"{names} are missing. Pass the folder that holds one of them, or `tfds` or `datasets` "
            "to load the task from there."
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
        raise ValueError(f"{place} is no example of the task. Received: {line}") from error


def _from_tfds(name, split, task):
    import tensorflow_datasets as tfds

    for example in tfds.as_numpy(tfds.load(f"glue/{name}", split=split)):
        *texts, label = (example[column] for column in task.columns)
        yield (*(text.decode() for text in texts), label)


def _from_datasets(name, split, task):
    import datasets

    for example in datasets.load_dataset("nyu-mll/glue", name, split=split):
        yield tuple(example[column] for column in task.columns)


def embedded_examples(split):
    """Return sentences of a toy language, and whether their words are in order: 1 or 0.

    A model without positions cannot tell, since both kinds have the same words.
    """
    rng = random.Random({"train": 1, "validation": 2}[split])
    words = {
        "the": ("the", "a", "every"),
        "adjective": ("old", "red", "small", "quiet"),
        "noun": ("cat", "bird", "fox", "child"),
        "verb": ("sees", "likes", "follows", "hears"),
    }
    order = ("the", "adjective", "noun", "verb", "the", "noun")
    texts, labels = [], []
    for _ in range({"train": 2000, "validation": 400}[split]):
        sentence = [rng.choice(words[kind]) for kind in order]
        label = rng.randrange(2)
        if not label:
            first = rng.randrange(len(sentence) - 1)
            sentence[first : first + 2] = reversed(sentence[first : first + 2])
        texts.append(" ".join(sentence))
        labels.append(label)
    return texts, np.array(labels, dtype="int32")
