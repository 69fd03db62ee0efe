"""Pairs of sentences in many languages, from XNLI's files, and a task without data.

XNLI has the form of XTREME: a file for each language, with a premise, a hypothesis and a label in
each line, separated by tabs. The test files of XTREME have no labels. The embedded task is small
and needs no data: a rule makes its sentences in three languages.
"""

import dataclasses
import random
import re
from pathlib import Path

import glue_data
from glue_tasks import TASKS

CLASSES = TASKS["mnli"].classes


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Premises, hypotheses, and the places of their labels in `CLASSES`."""

    premises: list
    hypotheses: list
    labels: list


def read(file, labels=None, most=None):
    """Return the pairs in a file.

    Args:
        file: Path of the file.
        labels: Path of a file with a label in each line, or `None` if they are in the third column.
        most: The largest number of pairs, or `None` for all.
    """
    rows = [line.split("\t") for line in _lines(file)]
    if labels is not None:
        found = _lines(labels)
        if len(found) != len(rows):
            raise ValueError(
                f"{labels} must have a label for each line of {file}. Received: {len(found)} "
                f"labels and {len(rows)} lines."
            )
        rows = [[*row[:2], label] for row, label in zip(rows, found, strict=True)]
    for number, row in enumerate(rows, start=1):
        if len(row) != 3 or row[2] not in CLASSES:
            raise ValueError(
                f"{file}, line {number} must have a premise, a hypothesis and one of "
                f"{', '.join(CLASSES)}. Received: {row}. If another file has the labels, pass it "
                "as --test-labels."
            )
    return _pairs(rows[:most])


def read_mnli(source, most=None):
    """Return the training pairs of MNLI, from GLUE's files, `tfds` or `datasets`."""
    (premises, hypotheses), labels = glue_data.load("mnli", "train", source, most)
    return Pairs(premises, hypotheses, labels.tolist())


def language_of(file):
    """Return the language of a file by its name, such as `test-sw.tsv`."""
    found = re.search(r"-([a-z]{2})[.]tsv$", Path(file).name)
    if not found:
        raise ValueError(f"{file} must have a name such as `test-sw.tsv`, which has its language.")
    return found[1]


def _lines(file):
    # XNLI's lines end with carriage returns and line feeds.
    text = Path(file).read_text(encoding="utf-8")
    return text.removesuffix("\n").split("\n")


def _pairs(rows):
    premises, hypotheses, labels = (list(column) for column in zip(*rows, strict=True))
    return Pairs(premises, hypotheses, [CLASSES.index(label) for label in labels])


# === The task without data ===

# The words of each language, in the same order. The sentences have the same order of words, too.
WORDS = {
    "en": "fox cat dog bird horse goat | sees follows hears likes | here there | never",
    "de": "fuchs katze hund vogel pferd ziege | sieht folgt hoert mag | hier dort | nie",
    "es": "zorro gato perro ave caballo cabra | ve sigue oye quiere | aqui alli | nunca",
}


def embedded(split, language, most=None):
    """Return sentences about animals.

    The premise has two facts. A hypothesis that repeats one of them is entailed, one that denies it
    is a contradiction, and all others are neutral.

    Args:
        split: `"train"` or `"test"`.
        language: One of `WORDS`. All languages have the same sentences.
        most: The largest number of pairs. Defaults to `None`, which means 3000 or 300.
    """
    rng = random.Random(f"{split} animals")
    parts = [part.split() for part in WORDS[language].split("|")]
    size = min(most or 3000, {"train": 3000, "test": 300}[split])
    return _pairs([_example(rng, *parts) for _ in range(size)])


def _example(rng, animals, verbs, places, never):
    first, second, other = rng.sample(animals, 3)
    facts = [(first, rng.choice(verbs), second), (second, rng.choice(verbs), other)]
    label = rng.choice(CLASSES)
    subject, verb, object_ = rng.choice(facts)
    if label == "neutral":
        verb = rng.choice([word for word in verbs if word != verb])
    denied = never if label == "contradiction" else []
    hypothesis = " ".join([subject, *denied, verb, object_])
    premise = " . ".join(" ".join([*fact, rng.choice(places)]) for fact in facts)
    return premise, hypothesis, label
