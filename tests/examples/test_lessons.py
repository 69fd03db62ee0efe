"""Each lesson runs, with small sizes.

`tests/distribution` runs the one for several devices with `torchrun`, and `test_serve` the service.
"""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from tests.fixtures import eager_steps, numpy_initializers  # noqa: F401
from tests.helpers import once

LESSONS = {
    "bias_in_your_model": {"number": 60, "epochs": 1},
    "pretrain": {"steps": 2, "epochs": 1, "vocabulary_size": 300},
    "finetune": {"epochs": 1},
    "search": {},
    "train_embedder": {"epochs": 1, "number": 64},
    "translate": {"count": 90, "held_out": 4, "epochs": 1, "hidden_dim": 16},
    "several_devices": {"steps": 2},
    "rerank": {"number": 6, "held_out": 4, "epochs": 1, "batch_size": 3},
}
# What a lesson prints.
OUTPUT = {
    "bias_in_your_model": r"no positions: accuracy \d\.\d\d\nDIET-REL: accuracy",
    "pretrain": r"Validation loss after 2 steps, seed 0:\ndiet_abs: \d\.\d+  input: \d\.\d+\n",
    "finetune": r"right in \d of 6 training texts\n(bad|good) \(\d\.\d\d\): a great story\n",
    "search": r"5 paragraphs are embedded.\n\nthere is water everywhere\n  0\.\d+  ",
    "train_embedder": r"before: .*recall@10 0\.\d+.*\nafter: .*recall@10 0\.\d+",
    "translate": r"\d+% of 4 held-out numbers are right",
    "several_devices": r"loss: \d",
    "rerank": r"embedder: .*mrr@10 \d\.\d+.*\nreranker: .*ndcg@10 \d\.\d+.*\n\nis it 14",
}
FOLDER = Path(__file__).parents[2] / "examples"


def write_questions():
    """Write a file like SQuAD with 15 paragraphs, and return its name."""
    paragraphs = [
        {"context": f"the number is {i}", "qas": [{"question": f"is it {i}"}]} for i in range(15)
    ]
    Path("squad.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return "squad.json"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


# What the others call is tested on each backend.
@pytest.mark.parametrize(
    "name", ["several_devices", *once(*(name for name in LESSONS if name != "several_devices"))]
)
def test_lesson(name, capfd, monkeypatch):
    if name == "several_devices" and keras.config.backend() == "torch":
        pytest.skip("tests/distribution runs it with torchrun")
    lesson = importlib.import_module(f"examples.{name}")
    if name == "pretrain":
        # A part of the text.
        monkeypatch.setattr(lesson, "topics", dict(list(lesson.topics.items())[:40]))
    arguments = [write_questions()] if name == "rerank" else []
    lesson.main(*arguments, **LESSONS[name])
    assert re.search(OUTPUT[name], capfd.readouterr().out)


@pytest.mark.any_backend
def test_files_of_the_user(tmp_path, capsys):
    finetune, search = (importlib.import_module(f"examples.{n}") for n in ("finetune", "search"))
    (tmp_path / "colors.csv").write_text("text,label\nred,warm\nblue,cold\norange,warm\n" * 4)
    answers = finetune.main(tmp_path / "colors.csv", ["red"], epochs=1)
    assert {answer["label"] for answer in answers[0]} == {"warm", "cold", "label"}

    (tmp_path / "text.txt").write_text("a river\nfloods the town\n\n\nthe team wins")
    for is_new in (True, False):
        assert search.main(None, tmp_path / "text.txt", ["the team wins"])[0][0] == "the team wins"
        assert ("2 paragraphs are embedded." in capsys.readouterr().out) == is_new


@pytest.mark.any_backend
def test_lessons_are_short_and_complete():
    lessons = {path.stem: path.read_text() for path in FOLDER.glob("*.py")}
    names = [*LESSONS, "serve"]
    assert set(lessons) - {"__init__"} == set(names)
    assert max(text.count("\n") for text in lessons.values()) <= 120
    for number, name in enumerate(names, start=1):
        assert lessons[name].startswith(f'"""Lesson {number}: ')
        assert f"python examples/{name}.py" in lessons[name]


@pytest.mark.any_backend
@pytest.mark.parametrize("name", [*LESSONS, "serve"])
def test_help_needs_only_python(name):
    """It does not wait for the import of Keras and a backend."""
    command = (sys.executable, "-S", FOLDER / f"{name}.py", "--help")
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stdout.startswith("Lesson "), result.stderr
