"""XNLI and XQuAD from end to end: the files, the commands of the examples, and the page."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("matplotlib")

from examples.paper import example_runs, multilingual
from examples.paper.tests.helpers import imported

pytestmark = pytest.mark.any_backend
CLASSES = ("neutral", "contradiction", "entailment")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with XNLI in three languages, two of which have a test file, and XQuAD in two."""
    monkeypatch.setattr(multilingual, "TRAINING_PAIRS", 6)
    xnli = tmp_path / "data" / "xnli"
    xnli.mkdir(parents=True)
    for language in ("en", "de", "sw"):
        lines = [
            f"{language} premise {i // 3}\t{language} \x85 hypothesis {i}\t{CLASSES[i % 3]}\r\n"
            for i in range(9)
        ]
        (xnli / f"dev-{language}.tsv").write_text("".join(lines), encoding="utf-8", newline="")
    for language in ("en", "de"):
        lines = [f"{language} first {i}\t{language} second {i}\r\n" for i in range(7)]
        (xnli / f"test-{language}.tsv").write_text("".join(lines), encoding="utf-8", newline="")
    labels = [CLASSES[(i + 1) % 3] + "\n" for i in range(7)]
    (xnli / "test-labels.txt").write_text("".join(labels), encoding="utf-8")
    for folder, names in (
        ("squad_v1.1", ("train-a.json", "train-b.json")),
        ("xquad", ("xquad.en.json", "xquad.tr.json")),
    ):
        (tmp_path / "data" / folder).mkdir()
        for name in names:
            (tmp_path / "data" / folder / name).write_text("{}")
    return tmp_path / "data"


@pytest.fixture
def started(monkeypatch):
    """The commands by the name of their script. A run writes its files without training."""
    commands = {}

    def run(command, check, env):
        assert check
        script, words = Path(command[1]).name, command[2:]
        commands[script] = words
        folder = Path(words[words.index("--output-dir") + 1])
        if script == "pretrain_masked_lm.py":
            for name, loss in (("diet_rel", 5.25), ("input", 6.5)):
                (folder / name).mkdir(parents=True)
                (folder / name / "history.csv").write_text(f"epoch,val_loss\n0,9.5\n1,{loss}\n")
            return
        folder.mkdir()
        lines = ["task,metric,model,learning_rate,seeds,median"]
        first = words.index("--presets") + 1
        for i, preset in enumerate(words[first : first + 2]):
            for j, language in enumerate(("en", "mean", "tr")):
                if script == "finetune_xnli.py":
                    lines.append(f"{language},accuracy,{preset},0.1,1,{40 + 10 * i + j}.5")
                else:
                    lines.append(f"xquad {language},f1,{preset},0.1,1,{10 + 2 * i + j}.25")
                    lines.append(f"xquad {language},exact_match,{preset},0.1,1,{2 * i + j}.75")
        (folder / "results.csv").write_text("\n".join(lines) + "\n")

    monkeypatch.setattr(example_runs, "subprocess", SimpleNamespace(run=run))
    return commands


def options_of(started, script, module=None):
    """The options of a command, as its script reads them."""
    with imported(module or script) as example:
        return example.parse_arguments(started[f"{script}.py"])


def test_the_runs_and_their_results(data, started):
    """All languages of XQuAD are evaluated. The scripts accept the options."""
    folder = data.parent
    words = ["--data", str(data), "--runs", str(folder / "runs"), "--evaluation-examples", "5"]
    words += ["--position-encoding", "diet_rel", "input", "--output", str(folder / "m.json")]
    multilingual.main(words)

    options = options_of(started, "pretrain_masked_lm", "pretrain_options")
    assert (options.vocabulary_size, options.sequence_length, options.steps) == (8000, 256, 400)
    pretraining = folder / "runs" / "pretraining"
    presets = [str(pretraining / name / "preset") for name in ("diet_rel", "input")]
    options = options_of(started, "finetune_xnli")
    assert (options.sequence_length, options.batch_size, options.epochs) == (96, 32, 4)
    assert (options.presets, options.learning_rates) == (presets, [0.0005])
    options = options_of(started, "finetune_qa")
    assert (options.sequence_length, options.doc_stride, options.examples) == (256, 128, 1500)
    assert (options.presets, options.evaluation_examples) == (presets, 5)
    training = [str(data / "squad_v1.1" / f"train-{part}.json") for part in "ab"]
    files = [str(data / "xquad" / f"xquad.{language}.json") for language in ("en", "tr")]
    assert (list(map(str, options.train)), list(map(str, options.xquad))) == (training, files)

    results = json.loads((folder / "m.json").read_text())["PyTorch"]
    cells = results["cells"]
    assert results["settings"]["evaluation_examples"] == 5
    assert list(cells) == ["diet_rel", "input"]
    assert cells["diet_rel"]["losses"] == [9.5, 5.25]
    assert cells["input"]["xnli"]["tr"] == {"accuracy": 52.5}
    assert cells["input"]["qa"]["mean"] == {"f1": 13.25, "exact_match": 3.75}
    assert "| en | test-en.tsv | 5 | 40.5 | 50.5 |" in (folder / "m.md").read_text()
