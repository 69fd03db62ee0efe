"""XNLI and XQuAD from end to end: the files, the commands of the examples, and the page."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("matplotlib")

from benchmarks import example_runs, multilingual
from tests.examples import imported

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

    def run(command, check):
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
        for i, preset in enumerate(values_of(words, "--presets")):
            for j, language in enumerate(("en", "mean", "tr")):
                if script == "finetune_xnli.py":
                    lines.append(f"{language},accuracy,{preset},0.1,1,{40 + 10 * i + j}.5")
                else:
                    lines.append(f"xquad {language},f1,{preset},0.1,1,{10 + 2 * i + j}.25")
                    lines.append(f"xquad {language},exact_match,{preset},0.1,1,{2 * i + j}.75")
        (folder / "results.csv").write_text("\n".join(lines) + "\n")

    monkeypatch.setattr(example_runs, "subprocess", SimpleNamespace(run=run))
    return commands


def values_of(words, option):
    """Return the words after an option, up to the next option."""
    words = words[words.index(option) + 1 :]
    ends = [i for i, word in enumerate(words) if word.startswith("--")]
    return words[: ends[0]] if ends else words


def run_command(data, *options):
    folder = data.parent
    words = ["--data", str(data), "--runs", str(folder / "runs"), "--evaluation-examples", "5"]
    words += ["--position-encoding", "diet_rel", "input", "--output", str(folder / "m.json")]
    multilingual.main([*words, *options])
    return json.loads((folder / "m.json").read_text())


def test_all_languages_of_xquad_are_evaluated(data, started):
    run_command(data)
    words = started["finetune_qa.py"]
    training = [str(data / "squad_v1.1" / f"train-{part}.json") for part in "ab"]
    assert values_of(words, "--train") == training
    files = [str(data / "xquad" / f"xquad.{language}.json") for language in ("en", "tr")]
    assert values_of(words, "--xquad") == files
    assert values_of(words, "--evaluation-examples") == ["5"]
    presets = [
        str(data.parent / "runs" / "pretraining" / name / "preset")
        for name in ("diet_rel", "input")
    ]
    for script in ("finetune_qa.py", "finetune_xnli.py"):
        assert values_of(started[script], "--presets") == presets


def test_the_examples_accept_their_options(data, started):
    run_command(data)
    with imported("pretrain_options") as script:
        options = script.parse_arguments(started["pretrain_masked_lm.py"])
    assert (options.vocabulary_size, options.sequence_length) == (8000, 256)
    assert (options.intermediate_dim, options.steps) == (512, 400)
    with imported("finetune_xnli") as script:
        options = script.parse_arguments(started["finetune_xnli.py"])
    assert (options.sequence_length, options.batch_size, options.epochs) == (96, 32, 4)
    assert options.learning_rates == [0.0005]
    with imported("finetune_qa") as script:
        options = script.parse_arguments(started["finetune_qa.py"])
    assert (options.sequence_length, options.doc_stride) == (256, 128)
    assert (options.batch_size, options.epochs, options.examples) == (16, 2, 1500)
    assert options.learning_rates == [0.0005]


def test_results_and_page(data, started):
    results = run_command(data)
    cells, settings = results["cells"], results["settings"]
    assert settings["position_encoding"] == ["diet_rel", "input"]
    assert settings["evaluation_examples"] == 5
    assert list(cells) == ["diet_rel", "input"]
    assert cells["diet_rel"]["losses"] == [9.5, 5.25]
    assert cells["input"]["xnli"]["tr"] == {"accuracy": 52.5}
    assert cells["input"]["qa"]["mean"] == {"f1": 13.25, "exact_match": 3.75}
    page = (data.parent / "m.md").read_text()
    for line in (
        "| loss of masked tokens | 5.25 | 6.50 |",
        "| en | test-en.tsv | 5 | 40.5 | 50.5 |",
        "| mean |  |  | 41.5 | 51.5 |",
        "| language | diet_rel, F1 | diet_rel, exact match | input, F1 | input, exact match |",
        "| tr | 12.2 | 2.8 | 14.2 | 4.8 |\n| mean | ",
    ):
        assert line in page
    assert '"doc-stride": 128' in (data.parent / "m.json").read_text()
