"""Questions with contexts and answers, from files in SQuAD's format, and a task without data.

SQuAD, XQuAD, MLQA and the gold passages of TyDiQA have the same format: JSON with `data`, its
`paragraphs`, and their `qas`. The embedded task is small and needs no data: a rule makes its
stories.
"""

import dataclasses
import json
import random
import re
from pathlib import Path

# File names of TyDiQA have the names of languages, and those of XTREME their codes.
LANGUAGES = {
    "arabic": "ar",
    "bengali": "bn",
    "english": "en",
    "finnish": "fi",
    "indonesian": "id",
    "korean": "ko",
    "russian": "ru",
    "swahili": "sw",
    "telugu": "te",
}


@dataclasses.dataclass(frozen=True)
class Questions:
    """Questions, their contexts, and all gold answers of each question.

    Attributes:
        ids: list of str. The ids of the questions.
        questions: list of str.
        contexts: list of str. The context of each question.
        golds: For each question, a list of `(text, start)`. An empty list means no answer.
    """

    ids: list
    questions: list
    contexts: list
    golds: list

    @property
    def texts(self):
        """The gold answers of each question, without their places."""
        return [[text for text, _ in golds] for golds in self.golds]

    @property
    def labels(self):
        """The first gold answer of each question, as the labels of `fit`."""
        first = [golds[0] if golds else ("", -1) for golds in self.golds]
        return {"text": [text for text, _ in first], "answer_start": [start for _, start in first]}


def from_rows(rows):
    """Return `Questions` of rows `(id, question, context, golds)`."""
    rows = list(rows)
    if not rows:
        raise ValueError("A set of questions must have at least one question. Received: none.")
    return Questions(*map(list, zip(*rows, strict=True)))


def read(files, most=None):
    """Return the questions of files in SQuAD's format.

    Args:
        files: Paths of JSON files.
        most: The largest number of questions, or `None` for all.
    """
    rows = [row for file in files for row in _rows(file)]
    return from_rows(rows[:most])


def _rows(file):
    content = json.loads(Path(file).read_text(encoding="utf-8"))
    if not isinstance(content, dict) or "data" not in content:
        raise ValueError(f"{file} must have SQuAD's format. Received: JSON without `data`.")
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                # Questions of SQuAD 2.0 without answer have `plausible_answers` beside an empty
                # list.
                golds = [(gold["text"], gold["answer_start"]) for gold in question["answers"]]
                yield question["id"], question["question"], paragraph["context"], golds


def language_of(file):
    """Return the language of a file's contexts by its name, and `"en"` if it names none.

    The authors use these names: `xquad.ar.json`, `test-context-ar-question-de.json`,
    `tydiqa.ar.dev.json` and `tydiqa-goldp-dev-arabic.json`.
    """
    name = Path(file).name.lower()
    found = re.search(r"context-([a-z]{2})-", name) or re.search(r"[.]([a-z]{2})[.]", name)
    if found:
        return found[1]
    names = [code for language, code in LANGUAGES.items() if language in name]
    return names[0] if names else "en"


# === The task without data ===

NAMES = ["anna", "paul", "lena", "omar", "ruth", "ivan", "nora", "hugo", "mia", "tom"]
ANIMALS = ["fox", "cat", "dog", "bird", "horse", "goat"]
COLORS = ["red", "brown", "white", "black"]
PLACES = ["old town", "north bay", "rome", "the garden", "the tall tower", "lima"]
DAYS = ["monday", "tuesday", "sunday night", "friday", "the first of may"]
TEMPLATES = {
    "place": "where did {name} meet the {animal}?",
    "day": "when did {name} meet the {animal}?",
    "color": "which color had the animal of {name}?",
}


def embedded(split, with_unanswerable=False, size=None):
    """Return questions about stories. Several people meet an animal, each at a place on a day.

    Args:
        split: `"train"` or `"validation"`.
        with_unanswerable: Whether a fifth of the questions is about somebody else.
        size: Number of questions. Defaults to `None`, which means 3000 or 300.
    """
    rng = random.Random(f"{split} stories")
    size = size or {"train": 3000, "validation": 300}[split]
    return from_rows(_story(rng, f"{split}-{i}", with_unanswerable) for i in range(size))


def _story(rng, name_of_question, with_unanswerable):
    *names, stranger = rng.sample(NAMES, rng.randint(2, 4) + 1)
    facts = [
        {
            "name": name,
            "color": rng.choice(COLORS),
            "animal": rng.choice(ANIMALS),
            "place": rng.choice(PLACES),
            "day": rng.choice(DAYS),
        }
        for name in names
    ]
    kind, asked, context, golds = rng.choice(list(TEMPLATES)), rng.choice(facts), "", []
    for fact in facts:
        for part in ("{name} met a ", "{color}", " {animal} in ", "{place}", " on ", "{day}", ". "):
            text = part.format(**fact)
            if fact is asked and part == f"{{{kind}}}":
                golds = [(text, len(context))]
            context += text
    if with_unanswerable and rng.random() < 0.2:
        asked, golds = {**asked, "name": stranger}, []
    return name_of_question, TEMPLATES[kind].format(**asked), context.strip(), golds
