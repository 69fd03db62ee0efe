"""Fine-tuning on SQuAD: `finetune_qa.py`, `qa_data.py` and `qa_results.py` in `examples/`."""

import csv
import json

import pytest

from examples.paper.tests.helpers import fixture_of, save_preset, squad_paragraph

pytestmark = pytest.mark.any_backend


script = fixture_of("finetune_qa")
data = fixture_of("finetune_qa", "qa_data")
results = fixture_of("finetune_qa", "qa_results")


CAT = squad_paragraph(
    "the red cat and the dog .", ("q1", "the cat", ["red", "red cat"]), ("q2", "a bird", [])
)
FOX = squad_paragraph("a fox", ("q3", "the fox", ["fox"]))
FILE = {
    "version": "v2.0",
    "data": [{"title": "a", "paragraphs": [CAT]}, {"title": "b", "paragraphs": [FOX]}],
}


@pytest.fixture
def folder(tmp_path):
    for name in ("train-v2.0.json", "dev-v2.0.json", "xquad.ar.json", "xquad.de.json"):
        (tmp_path / name).write_text(json.dumps(FILE), encoding="utf-8")
    save_preset(tmp_path / "preset")
    return tmp_path


def test_files_of_squad_are_read(data, folder):
    questions = data.read([folder / "train-v2.0.json"])
    assert questions.ids == ["q1", "q2", "q3"]
    assert questions.contexts == ["the red cat and the dog .", "the red cat and the dog .", "a fox"]
    assert questions.texts == [["red", "red cat"], [], ["fox"]]
    assert questions.labels == {"text": ["red", "", "fox"], "answer_start": [4, -1, 2]}
    assert data.read([folder / "train-v2.0.json"] * 2, most=4).ids == ["q1", "q2", "q3", "q1"]


def test_stories_answer_their_questions(data):
    questions = data.embedded("train", with_unanswerable=True, size=200)
    is_empty = [not golds for golds in questions.golds]
    assert 20 < sum(is_empty) < 60
    for question, context, golds in zip(
        questions.questions, questions.contexts, questions.golds, strict=True
    ):
        (name,) = (word.rstrip("?") for word in question.split() if word.rstrip("?") in data.NAMES)
        assert (f"{name} met" in context) == bool(golds)
        for text, start in golds:
            # The answer is in the sentence about the person in the question.
            assert context[start : start + len(text)] == text
            assert context.rindex(f"{name} met", 0, start) >= context.rfind(". ", 0, start)
    assert not set(questions.contexts) & set(data.embedded("validation").contexts)
    assert all(data.embedded("validation", size=50).golds)


@pytest.mark.parametrize(
    ("data_set", "language", "version", "expected"),
    [
        # "die" is an article of MLQA's German.
        ("mlqa", "de", "1.1", (100, 100)),
        ("xquad", "de", "2.0", (50, 50 * (1 + 2 / 3))),
        ("squad", "en", "1.1", (50, 50 * (1 + 2 / 3))),
    ],
)
def test_each_data_set_has_its_metrics(results, data, data_set, language, version, expected):
    questions = data.Questions(["a", "b"], ["?"] * 2, ["x"] * 2, [[("Stadt", 0)], [("Ort", 0)]])
    found = results.evaluate(["die Stadt", "Ort"], questions, data_set, language, version)
    assert (found["exact_match"], found["f1"]) == pytest.approx(expected)


def test_means_are_over_languages(results):
    found = {"squad.en.f1": 9.0, "xquad.de.f1": 1.0, "xquad.ar.f1": 4.0}
    assert results.with_means(found) == {**found, "xquad.mean.f1": 2.5}


def test_questions_without_answer_count_in_version_2(results, data):
    questions = data.Questions(["a"], ["?"], ["x"], [[]])
    for data_set, version, expected in (
        ("squad", "2.0", 100),
        ("embedded", "2.0", 100),
        ("squad", "1.1", 0),
        ("tydiqa", "2.0", 0),
    ):
        assert results.evaluate([""], questions, data_set, "en", version)["f1"] == expected


QUICK = ["--epochs", "1", "--sequence-length", "13", "--doc-stride", "3", "--batch-size", "4"]


def test_presets_are_fine_tuned(script, results, folder):
    output = folder / "output"
    arguments = [*QUICK, "--presets", str(folder / "preset"), "--add-segments"]
    arguments += ["--train", str(folder / "train-v2.0.json"), "--squad-version", "2.0"]
    arguments += ["--squad", str(folder / "dev-v2.0.json")]
    arguments += ["--xquad", *(str(folder / f"xquad.{name}.json") for name in ("de", "ar"))]
    arguments += ["--output-dir", str(output)]
    script.main([*arguments, "--null-threshold=-1e9", "--seeds", "0", "1"])
    runs = results.TABLE.read(output / "runs.csv")
    assert [run["seed"] for run in runs] == ["0", "1"]
    found = results.metrics_of(runs[0])
    names = ["squad.en", "xquad.ar", "xquad.de"]
    assert list(found) == [f"{name}.{metric}" for name in names for metric in ("f1", "exact_match")]
    # With this threshold no question of SQuAD has an answer. One of three has none.
    assert found["squad.en.exact_match"] == pytest.approx(100 / 3, abs=1e-3)
    predictions, _ = (output / "predictions").iterdir()
    assert json.loads((predictions / "squad.en.json").read_text()) == dict.fromkeys(
        ["q1", "q2", "q3"], ""
    )
    assert all(json.loads((predictions / "xquad.ar.json").read_text()).values())
    with (output / "results.csv").open(newline="") as file:
        rows = {(row["task"], row["metric"]): row for row in csv.DictReader(file)}
    assert {task for task, _ in rows} == {"squad en", "xquad ar", "xquad de", "xquad mean"}
    assert {row["seeds"] for row in rows.values()} == {"2"}
    assert json.loads((output / "results.json").read_text())[0]["task"] == "squad en"
