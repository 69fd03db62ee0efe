"""The benchmark of question answering, with a tiny random BERT of Hugging Face."""

import json

import numpy as np
import pytest

pytest.importorskip("transformers")

from examples.paper import question_answering as benchmark
from examples.paper.tests.helpers import squad_paragraph
from keras_diet.models.diet_bert import diet_bert_question_answerer as question_answerer
from tests.models.test_from_bert_of_hugging_face import make

pytestmark = [
    pytest.mark.any_backend,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]

CONTEXTS = {
    "the quick fox jumped over the lazy dog .": ["quick fox", "the lazy dog"],
    "a slow red cat sleeping on the mat .": ["slow red cat", "on the mat"],
    "the birds sing in a tall tree .": ["birds", "a tall tree"],
}


PARAGRAPHS = [
    squad_paragraph(
        context,
        *(
            (f"{context} {i}", f"the {context.split()[i]}", [answer, answer.split()[-1]])
            for i, answer in enumerate(answers)
        ),
    )
    for context, answers in CONTEXTS.items()
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "bert").mkdir()
    (tmp_path / "squad").mkdir()
    make(tmp_path / "bert", attention_probs_dropout_prob=0.3, hidden_dropout_prob=0.2)
    for name in ("train-v1.1.json", "dev-v1.1.part1.json", "dev-v1.1.part2.json"):
        file = {"data": [{"paragraphs": [paragraph]} for paragraph in PARAGRAPHS]}
        (tmp_path / "squad" / name).write_text(json.dumps(file))
    return tmp_path


def arguments_of(folder, *options):
    return [
        *("--bert", str(folder / "bert"), "--data", str(folder / "squad")),
        *("--sequence-length", "12", "--doc-stride", "3", "--batch-size", "4", "--rounds", "2"),
        *options,
    ]


@pytest.fixture
def parts(folder):
    """Function that returns the options, the preprocessor and the batches of a command."""

    def make_parts(*options):
        options = benchmark.parse_arguments(arguments_of(folder, *options))
        preprocessor = benchmark.make_preprocessor(options)
        train = benchmark.read_questions(options.data, "train", options.examples)
        return options, preprocessor, benchmark.Batches(preprocessor, train, options)

    return make_parts


@pytest.mark.parametrize("row", ["hugging_face", "hugging_face_context"])
def test_steps_of_both_libraries_are_the_same(parts, folder, monkeypatch, row):
    """Without dropout and with the same loss, the losses of all steps are equal."""
    config = folder / "bert" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "hidden_dropout_prob": 0.0}))
    if row == "hugging_face":
        # Its loss is over all positions.
        monkeypatch.setattr(question_answerer, "mask_answer_logits", lambda logits, *masks: logits)
    # A large rate and a large decay: what differs shows within a few steps.
    options, preprocessor, batches = parts(
        *("--epochs", "3", "--learning-rate", "0.01", "--weight-decay", "2.0"),
        *("--warmup-proportion", "0.4"),
    )
    losses = {}
    for name in (row, "input"):
        step, _ = benchmark.make_step(name, 2, preprocessor, batches.num_steps, options)
        losses[name] = [step(*batch) for batch in batches.shuffled(2)]
    assert len(losses["input"]) >= 6
    assert np.ptp(losses["input"]) > 0.3
    np.testing.assert_allclose(losses["input"], losses[row], rtol=1e-3)


def test_results_are_added_row_by_row(folder, monkeypatch, capsys):
    output = folder / "results.json"
    arguments = arguments_of(folder, "--output", str(output), "--resume", "--epochs", "1")
    arguments += ["--evaluation-examples", "5"]
    benchmark.main([*arguments, "--rows", "hugging_face"])
    first = json.loads(output.read_text())["PyTorch"]["cells"]
    benchmark.main([*arguments, "--rows", "hugging_face", "diet_rel", "--seeds", "0", "7"])
    results = json.loads(output.read_text())["PyTorch"]
    cells = results["cells"]
    assert {row: list(cell) for row, cell in cells.items()} == {
        "hugging_face": ["0", "7"],
        "diet_rel": ["0", "7"],
    }
    # The finished run, with its seconds, is the same.
    assert cells["hugging_face"]["0"] == first["hugging_face"]["0"]
    assert list(results["times"]) == ["hugging_face", "diet_rel"]
    assert results["settings"]["evaluation_examples"] == 5
    for cell in (cell for seeds in cells.values() for cell in seeds.values()):
        assert 0 <= cell["exact_match"] <= cell["f1"] <= 100
        assert cell["loss_of_last_epoch"] > 0
        assert cell["training_seconds"] > 0
    assert output.with_suffix(".md").read_text() in capsys.readouterr().out
    with pytest.raises(SystemExit, match="other values of: learning_rate"):
        benchmark.main([*arguments, "--learning-rate", "0.5"])


def test_a_row_has_its_metrics(parts, monkeypatch):
    options, preprocessor, batches = parts("--epochs", "3")
    evaluation = benchmark.read_questions(options.data, "dev", 4)

    class Answerer:
        def answer(self, questions, contexts, batch_size):
            assert (questions, contexts) == (evaluation.questions, evaluation.contexts)
            assert batch_size == 4
            right = [texts[1] for texts in evaluation.texts]
            return [{"text": text} for text in [*right[:3], "wolf"]]

    losses = iter(range(1000))
    monkeypatch.setattr(benchmark, "make_step", lambda *_: (lambda *batch: next(losses), Answerer))
    found = benchmark.run_row("input", 3, preprocessor, batches, evaluation, options)
    assert (found["f1"], found["exact_match"]) == (75, 75)
    number = batches.num_steps
    assert found["loss_of_last_epoch"] == np.mean(range(number - number // 3, number))
