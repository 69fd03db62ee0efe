"""Sentences for `tag_words.py`: CoNLL files, and a task without data."""

import random
from pathlib import Path


def read_conll(path, columns=(0, -1)):
    """Return the words and the tags of the sentences in a file.

    Each line holds a word with its tags, in columns separated by white space. Blank lines separate
    sentences. Lines that begin with `-DOCSTART-` are skipped.

    Args:
        path: A UTF-8 file.
        columns: The column of the words and the column of the tags. `-1` is the last column.
    """
    sentences, tags, is_new = [], [], True
    with Path(path).open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            fields = line.split()
            if not fields or fields[0] == "-DOCSTART-":
                is_new = True
                continue
            if len(fields) < 2 or len(fields) <= max(columns):
                raise ValueError(
                    f"{path}, line {number} must have a word in column {columns[0]} and a tag in "
                    f"column {columns[1]}. Received: {line!r}. Correct the line, or choose other "
                    "--columns."
                )
            if is_new:
                sentences.append([])
                tags.append([])
                is_new = False
            sentences[-1].append(fields[columns[0]])
            tags[-1].append(fields[columns[1]])
    if not sentences:
        raise ValueError(f"{path} must have at least one sentence. Received: no words.")
    return sentences, tags


# Each name may be a person or a place. Only the words around it, in their order, tell.
NAMES = ("Florence", "Jordan", "Paris", "Georgia", "Austin", "Sydney", "Chelsea", "Carolina")
SECOND_NAMES = ("Hill", "Lake", "Woods", "Fields", "Rivers")
PATTERNS = (
    "PER met PER in LOC .",
    "PER and PER left LOC .",
    "in LOC , PER saw PER .",
    "from LOC , PER wrote to PER .",
    "the road to LOC is near the house of PER .",
    "the letter of PER about LOC came .",
)


def sentences_from_rule(split):
    """Return sentences with persons and places, and their tags in the BIO format."""
    rng = random.Random({"train": 1, "validation": 2}[split])
    sentences, tags = [], []
    for _ in range({"train": 2000, "validation": 300}[split]):
        words, of_words = [], []
        for word in rng.choice(PATTERNS).split():
            if word in ("PER", "LOC"):
                entity = [rng.choice(NAMES), rng.choice(SECOND_NAMES)][: rng.randint(1, 2)]
                words += entity
                of_words += [f"B-{word}", f"I-{word}"][: len(entity)]
            else:
                words.append(word)
                of_words.append("O")
        sentences.append(words)
        tags.append(of_words)
    return sentences, tags
