"""Four tasks of GLUE, from a folder in their original format, TFDS, or Hugging Face `datasets`.

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
class GlueTask:
    """How to read a task and what it predicts.

    Attributes:
        num_classes: Number of classes; 1 for scores.
        metrics: Names of the official metrics, the first to choose a learning rate by.
        columns: The names of the texts and of the label, in TFDS and `datasets`.
        files: The files of each split, below the folder of the data.
        fields: The columns of the texts and of the label in these files.
        has_header: Whether the files have one.
        classes: The labels in the files, in the order of the classes, or `None` for numbers.
    """

    num_classes: int
    metrics: tuple
    columns: tuple
    files: dict
    fields: tuple
    has_header: bool
    classes: tuple | None = None


TASKS = {
    "cola": GlueTask(
        num_classes=2,
        metrics=("matthews",),
        columns=("sentence", "label"),
        files={
            "train": ("cola/in_domain_train.tsv",),
            "validation": ("cola/in_domain_dev.tsv", "cola/out_of_domain_dev.tsv"),
        },
        fields=(3, 1),
        has_header=False,
    ),
    "sst2": GlueTask(
        num_classes=2,
        metrics=("accuracy",),
        columns=("sentence", "label"),
        # The 872 sentences of GLUE's validation split; phrases of `dev` are in `train` too.
        files={"train": ("sst2_glue/train.tsv",), "validation": ("sst2_glue/test.tsv",)},
        fields=(0, 1),
        has_header=True,
    ),
    "rte": GlueTask(
        num_classes=2,
        metrics=("accuracy",),
        columns=("sentence1", "sentence2", "label"),
        files={"train": ("rte/train.tsv",), "validation": ("rte/dev.tsv",)},
        fields=(1, 2, 3),
        has_header=True,
        classes=("entailment", "not_entailment"),
    ),
    "stsb": GlueTask(
        num_classes=1,
        metrics=("pearson", "spearman"),
        columns=("sentence1", "sentence2", "label"),
        files={"train": ("stsb/sts-train.tsv",), "validation": ("stsb/sts-dev.tsv",)},
        fields=(5, 6, 4),
        has_header=False,
    ),
    "embedded": GlueTask(
        num_classes=2,
        metrics=("matthews", "accuracy"),
        columns=(),
        files={},
        fields=(),
        has_header=False,
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
    *texts, labels = (list(column) for column in zip(*rows, strict=True))
    labels = np.array(labels, dtype="float32" if task.num_classes == 1 else "int32")
    return (texts[0] if len(texts) == 1 else tuple(texts)), labels


def _from_files(folder, split, task):
    for name in task.files[split]:
        path = folder / name
        if not path.exists():
            raise ValueError(
                f"{path} is missing. Pass the folder that holds {name.split('/')[0]}/, or `tfds` "
                "or `datasets` to load the task from there."
            )
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            if task.has_header:
                next(rows)
            for row in rows:
                *texts, label = (row[field] for field in task.fields)
                yield (*texts, float(label) if task.classes is None else task.classes.index(label))


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
