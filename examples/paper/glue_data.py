"""Tasks of GLUE, from a folder, TFDS, or Hugging Face `datasets`, and a task without data.

A folder holds the files as GLUE distributes them (`CoLA/train.tsv`, `SST-2/train.tsv`, ...) or as
the authors of the tasks do (`cola/in_domain_train.tsv`, `stsb/sts-train.tsv`, ...).

A split is a pair `(texts, labels)`. `texts` is a list of strings, or a pair of lists for tasks with
two sentences. `labels` is an array of class numbers or scores. The task `"embedded"` is small and
needs no data: a rule makes its sentences.
"""

import csv
import itertools
import random
from pathlib import Path

import numpy as np

from examples.paper.glue_tasks import TASKS


def load(name, split, source, most=None):
    """Return the texts and labels of a split.

    Args:
        name: One of `TASKS`.
        split: `"train"`, or a name in `TASKS[name].validation`.
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
        if (folder / files.of_split(split)[0]).exists():
            break
    else:
        names = " or ".join(str(folder / files.of_split(split)[0]) for files in task.files)
        raise ValueError(
            f"{names} must exist. Pass a folder with such a file, or pass `tfds` or `datasets` to "
            "load the task from there."
        )
    for name in files.of_split(split):
        with (folder / name).open(encoding="utf-8", newline="") as file:
            lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            for number, line in enumerate(lines, start=1):
                is_cut = files.skips_cut_lines and len(line) <= max(files.fields)
                if (number > 1 or not files.has_header) and not is_cut:
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
