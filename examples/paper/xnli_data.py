"""Pairs of sentences in many languages, from XNLI's files, and a task without data.

XNLI has the form of XTREME: a file for each language, with a premise, a hypothesis and a label in
each line, separated by tabs. The test files of XTREME have no labels. The embedded task is small
and needs no data: a rule makes its sentences in three languages.
"""

import dataclasses
import random
import re
from pathlib import Path

from examples.paper import glue_data
from examples.paper.glue_tasks import TASKS

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


def by_language(files):
    """Return the files as a dictionary, with the language of each, such as `"sw"`."""
    found = {language_of(file): file for file in files}
    if len(found) != len(files):
        raise ValueError(f"--test must have one file for each language. Received: {files}")
    return found


def language_of(file):
    """Return the language of a file by its name, such as `test-sw.tsv`."""
    found = re.search(r"-([a-z]{2})[.]tsv$", Path(file).name)
    if not found:
        raise ValueError(f"{file} must have a name such as `test-sw.tsv`, which has its language.")
    return found[1]


def _lines(file):
    # XNLI's lines end with a carriage return and a line feed. Other line breaks are text.
    text = Path(file).read_bytes().decode("utf-8").removesuffix("\n")
    return [line.removesuffix("\r") for line in text.split("\n")]


def _pairs(rows):
    premises, hypotheses, labels = (list(column) for column in zip(*rows, strict=True))
    return Pairs(premises, hypotheses, [CLASSES.index(label) for label in labels])


# === The task without data ===

# Names, properties in pairs of opposites, and the other words, in the same order. As in real
# languages, some words are the same in two of them.
_NAMES = "anna tom maria peter laura max eva ben clara leo"
WORDS = {
    "en": f"{_NAMES} | fair unfair social antisocial formal informal old young | and are is",
    "de": f"{_NAMES} | fair unfair sozial asozial formell informell alt jung | und sind ist",
    "es": f"{_NAMES} | justo injusto social antisocial formal informal viejo joven | y son es",
}
_SIZES = {"train": 2000, "test": 500}


def embedded(split, language, most=None):
    """Return sentences about people.

    The premise says that two people have a property. A hypothesis gives a property to one of them.
    The same property is entailed, its opposite is a contradiction, and all others are neutral. The
    hypothesis alone says nothing about the class.

    Args:
        split: `"train"` or `"test"`.
        language: One of `WORDS`. All languages have the same sentences.
        most: The largest number of pairs. Defaults to `None`, which means 2000 or 500.
    """
    rng = random.Random(f"{split} people")
    words = [part.split() for part in WORDS[language].split("|")]
    size = min(most or _SIZES[split], _SIZES[split])
    return _pairs([_example(rng, *words) for _ in range(size)])


def _example(rng, names, properties, others):
    and_, are, is_ = others
    people = rng.sample(names, 2)
    place = rng.randrange(len(properties))
    label = rng.choice(CLASSES)
    # Opposites have the places 2 n and 2 n + 1.
    neutral = [other for other in range(len(properties)) if other // 2 != place // 2]
    of_class = {"entailment": place, "contradiction": place ^ 1, "neutral": rng.choice(neutral)}
    premise = f"{people[0]} {and_} {people[1]} {are} {properties[place]}"
    return premise, f"{rng.choice(people)} {is_} {properties[of_class[label]]}", label
