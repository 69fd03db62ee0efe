"""The study: which runs it starts, what it keeps, and the table and tests on its page."""

import json
import math
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

from benchmarks import example_runs, study, study_page

pytestmark = pytest.mark.any_backend
# Validation losses by encoding and seed. The grid has its own seed.
LOSSES = {("input", "0"): 3.5, ("input", "1"): 3.75, ("t5", "0"): 3.25, ("t5", "1"): 3.375}

METRICS = {"cola": "matthews=0.25", "stsb": "pearson=0.5 spearman=0.75", "rte": "accuracy=0.5"}


@pytest.fixture
def started(monkeypatch):
    """Commands of the runs. A run writes its files without training."""
    commands = []

    def run(command, check):
        assert check
        script, words = Path(command[1]).name, command[2:]
        commands.append((script, *words))
        folder = Path(value_of(words, "--output-dir"))
        if script == "pretrain_masked_lm.py":
            encoding, seed = value_of(words, "--position-encoding"), value_of(words, "--seed")
            rate = float(value_of(words, "--learning-rate"))
            # The second rate is the best one, and the third diverges.
            grid = {0.0005: 5.0, 0.001: 4.0, 0.002: float("nan")}[rate]
            last = LOSSES.get((encoding, seed), grid)
            (folder / encoding / "preset").mkdir(parents=True)
            history = f"epoch,loss,val_loss\n0,9.0,7.0\n1,8.0,{last}\n"
            (folder / encoding / "history.csv").write_text(history)
            if not (folder / "vocabulary.txt").exists():
                (folder / "vocabulary.txt").write_text(
                    "[PAD]\n[UNK]\n[MASK]\n[CLS]\n[SEP]\na\nb\nc\n"
                )
                np.save(folder / "train.npy", [[3, 5, 5, 5, 6, 1, 4], [3, 5, 5, 5, 4, 0, 0]])
                np.save(folder / "validation.npy", [[3, 5, 6, 7, 4, 0, 0]])
        else:
            folder.mkdir(exist_ok=True)
            table = folder / "runs.csv"
            lines = table.read_text() if table.exists() else "task,metrics\n"
            lines += "".join(f"{task},{METRICS[task]}\n" for task in tasks_of(words))
            table.write_text(lines)

    monkeypatch.setattr(example_runs, "subprocess", SimpleNamespace(run=run))
    return commands


def value_of(words, option):
    return words[words.index(option) + 1]


def tasks_of(words):
    return words[words.index("--tasks") + 1 : words.index("--learning-rates")]


def run_study(folder, *options):
    texts = ["--text", "a.txt", "--validation-text", "b.txt", "--runs", str(folder / "runs")]
    study.main([*texts, "--output", str(folder / "study.json"), *options])
    return json.loads((folder / "study.json").read_text())


TWO_ROWS = ("--rows", "input", "t5", "--seeds", "0", "1")


def test_the_grid_chooses_the_rate_of_all_seeds(started, tmp_path):
    results = run_study(tmp_path, *TWO_ROWS)
    seeds = [(value_of(words, "--seed"), value_of(words, "--learning-rate")) for words in started]
    grid = [("1000", "0.0005"), ("1000", "0.001"), ("1000", "0.002")]
    assert seeds == [*grid, ("0", "0.001"), ("1", "0.001")] * 2
    assert value_of(started[0], "--steps") == "1000"
    assert value_of(started[3], "--steps") == "3000"
    cell = results["rows"]["t5"]
    assert cell["seeds"]["1"]["losses"] == [7.0, 3.375]
    assert cell["seeds"]["1"]["tokens"] == [250 * 32 * 64, 500 * 32 * 64]


def test_the_runs_share_their_packed_text(started, tmp_path):
    run_study(tmp_path, *TWO_ROWS)
    files = list((tmp_path / "runs").rglob("train.npy"))
    assert len(files) == 11
    assert len({file.stat().st_ino for file in files}) == 1


def test_the_loss_of_word_frequencies(started, tmp_path, monkeypatch):
    """Of 8 tokens that are not special, 6 are `a`, 1 is `b`, 1 is unknown, and none is `c`."""
    results = run_study(tmp_path, "--rows", "input", "--seeds", "0")
    # A token without an example counts as if it had one.
    expected = -(math.log(6 / 8) + math.log(1 / 8) + math.log(1 / 8)) / 3
    assert results["word_frequencies"] == pytest.approx(expected)
    assert f"token occurs has a loss of {expected:.4f}." in (tmp_path / "study.md").read_text()
    # The value stays, also without the packed text.
    monkeypatch.setattr(study, "loss_of_word_frequencies", None)
    results = run_study(tmp_path, "--rows", "input", "--seeds", "0", "1")
    assert results["word_frequencies"] == pytest.approx(expected)


def test_the_page_has_means_deviations_and_paired_tests(started, tmp_path):
    run_study(tmp_path, *TWO_ROWS)
    lines = (tmp_path / "study.md").read_text().splitlines()
    best, baseline = (line for line in lines if line.startswith(("| input", "| t5")))
    # The differences are -0.25 and -0.375: t = -0.3125 / (0.0884 / sqrt(2)) = -5, and with one
    # degree of freedom p = 1 - 2 / pi * atan(5).
    assert best == "| t5 | 0.001 | 2 | 3.3125 ± 0.0884 | -0.3125 | 0.126 |"
    assert baseline == "| input | 0.001 | 2 | 3.6250 ± 0.1768 |  |  |"
    assert (tmp_path / "study.svg").stat().st_size


def test_variants_are_compared_with_their_row():
    def cell(*losses):
        runs = {"learning_rate": 0.002, "tokens": [512, 1024]}
        seeds = {str(seed): runs | {"losses": [9, loss]} for seed, loss in enumerate(losses)}
        return {"seeds": seeds, "glue": {}}

    rows = {
        "input": cell(3.5, 3.75),
        "diet_abs, rank 8": cell(3.5, 3.0),
        "diet_abs": cell(3.25, 3.375),
        "diet_rel, sharing head-wise": cell(2.5),
        "diet_rel": cell(),
    }
    recipe, machine = {"backend": "jax"}, {"date": "today", "commit": "abc"}
    results = {"recipe": recipe, "machine": machine, "rows": rows, "word_frequencies": 6.5}
    page = study_page.make_page(results)
    tables = [table.partition("\n\n")[0] for table in page.split("\n\n|")[1:]]
    assert ["difference to `input`" in table for table in tables] == [True, False, False]
    assert [line.split(" |")[0] for line in tables[0].splitlines()[2:]] == ["| diet_abs", "| input"]
    # The differences are 0.25 and -0.375: t = -0.2 with one degree of freedom.
    assert tables[1].splitlines()[2:] == [
        "| diet_abs, rank 8 | 0.002 | 2 | 3.2500 ± 0.3536 | -0.0625 | 0.874 |",
        "| diet_abs | 0.002 | 2 | 3.3125 ± 0.0884 |  |  |",
    ]
    assert "difference to `diet_abs`" in tables[1]
    assert tables[2].splitlines()[2:] == [
        "| diet_rel, sharing head-wise | 0.002 | 1 | 2.5000 |  |  |"
    ]
    panels = study_page.plot(results).axes
    titles = ["Encodings", "Variants of diet_abs", "Variants of diet_rel"]
    assert [axes.get_title() for axes in panels] == titles
    assert [line[4:] for line in page.splitlines() if line.startswith("### ")] == titles
    names = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in panels]
    assert names == [
        ["diet_abs", "input", "word frequencies"],
        ["diet_abs, rank 8", "diet_abs", "word frequencies"],
        ["diet_rel, sharing head-wise", "word frequencies"],
    ]
    line, reference = panels[1].get_lines()[0], panels[1].get_lines()[-1]
    np.testing.assert_array_equal(line.get_xydata(), [[512, 9], [1024, 3.25]])
    assert set(reference.get_ydata()) == {6.5}


def test_a_small_p_value_is_a_bound():
    baseline = {"0": 3.0, "1": 4.0, "2": 5.0}
    values = {"0": 2.0, "1": 3.0, "2": 4.078125}
    # The differences are -1, -1 and -0.921875: t = -37.4 with two degrees of freedom, p = 0.0007.
    assert study_page.paired(values, baseline) == ("-0.9740", "< 0.001")
    values["2"] = 4.125
    assert study_page.paired(values, baseline) == ("-0.9583", "0.002")


def axes_of(count):
    """The picture of some rows with two seeds."""
    rows = {}
    for row in range(count):
        losses = {"0": [9, 3.0 + row], "1": [7, 3.5 + row]}
        seeds = {seed: {"losses": each, "tokens": [512, 1024]} for seed, each in losses.items()}
        rows[f"row{row}"] = {"seeds": seeds}
    (axes,) = study_page.plot({"rows": rows, "word_frequencies": 6.5}).axes
    return axes


def test_a_line_is_the_mean_and_a_band_has_the_lowest_and_the_highest():
    axes = axes_of(1)
    np.testing.assert_array_equal(axes.get_lines()[0].get_xydata(), [[512, 8], [1024, 3.25]])
    (band,) = axes.collections
    corners = {tuple(map(float, point)) for point in band.get_paths()[0].vertices}
    assert corners == {(512, 9), (512, 7), (1024, 3), (1024, 3.5)}


def test_all_lines_look_different():
    lines = axes_of(len(study.ENCODINGS)).get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines) == 17


def test_a_finished_part_is_not_repeated(started, tmp_path):
    run_study(tmp_path, "--rows", "input", "--seeds", "0")
    number = len(started)
    run_study(tmp_path, "--rows", "input", "--seeds", "0")
    assert len(started) == number
    run_study(tmp_path, "--rows", "input", "--seeds", "0", "1")
    assert [value_of(words, "--seed") for words in started[number:]] == ["1"]


def test_each_seed_is_fine_tuned_from_its_own_preset(started, tmp_path):
    glue = ("--glue", "data", "--tasks", "cola", "stsb")
    results = run_study(tmp_path, "--rows", "input", "--seeds", "0", "1", *glue)
    tuned = [words for words in started if words[0] == "finetune_glue.py"]
    presets = [Path(value_of(words, "--presets")).parts[-3] for words in tuned]
    assert presets == ["input-0.001-0", "input-0.001-1"]
    assert [tasks_of(words) for words in tuned] == [("cola", "stsb")] * 2
    assert [value_of(words, "--seeds") for words in tuned] == ["0", "1"]
    assert {value_of(words, "--learning-rates") for words in tuned} == {"0.0003"}
    options = ("--examples", "--epochs", "--sequence-length")
    sizes = {tuple(value_of(words, option) for option in options) for words in tuned}
    assert sizes == {("10000", "3", "64")}
    stsb = {"pearson": 0.5, "spearman": 0.75}
    assert results["rows"]["input"]["glue"]["1"] == {"cola": {"matthews": 0.25}, "stsb": stsb}
    # The mean takes the first metric of each task.
    page = (tmp_path / "study.md").read_text()
    assert "| input | 25.0 ± 0.0 | 50.0 ± 0.0 | 37.5 ± 0.0 |  |" in page
    recipe = "- Recipe of fine-tuning: epochs 3, batch-size 32, sequence-length 64, examples 10000"
    assert f"{recipe}, learning-rate 0.0003\n" in page


def test_only_missing_tasks_are_fine_tuned(started, tmp_path):
    options = ("--rows", "input", "--seeds", "0", "--glue", "data", "--tasks")
    run_study(tmp_path, *options, "rte")
    number = len(started)
    results = run_study(tmp_path, *options, "cola", "rte", "stsb")
    (words,) = started[number:]
    assert tasks_of(words) == ("cola", "stsb")
    assert results["rows"]["input"]["glue"]["0"] == {
        "rte": {"accuracy": 0.5},
        "cola": {"matthews": 0.25},
        "stsb": {"pearson": 0.5, "spearman": 0.75},
    }
    assert "--glue glue --tasks rte cola stsb " in (tmp_path / "study.md").read_text()


def test_a_lost_preset_is_pretrained_again(started, tmp_path):
    run_study(tmp_path, "--rows", "input", "--seeds", "0")
    number = len(started)
    options = ("--runs", str(tmp_path / "others"), "--glue", "data", "--tasks", "cola")
    run_study(tmp_path, "--rows", "input", "--seeds", "0", *options)
    scripts = [words[0] for words in started[number:]]
    assert scripts == ["pretrain_masked_lm.py", "finetune_glue.py"]


def test_variants_pass_their_option(started, tmp_path):
    run_study(tmp_path, "--rows", "diet_rel, sharing head-wise", "--seeds", "0")
    assert value_of(started[0], "--sharing") == "head-wise"
    assert value_of(started[0], "--position-encoding") == "diet_rel"


@pytest.mark.parametrize("lost", ["study.json", "runs/recipe.json"])
def test_another_recipe_is_refused(started, tmp_path, lost):
    run_study(tmp_path, "--rows", "input", "--seeds", "0")
    (tmp_path / lost).unlink()
    with pytest.raises(SystemExit, match="other values of: steps"):
        run_study(tmp_path, "--rows", "input", "--seeds", "0", "--change", "steps=7")


def test_an_interrupted_start_leaves_no_part_of_the_recipe(started, tmp_path, monkeypatch):
    def stop(self, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            run_study(tmp_path, "--rows", "input", "--seeds", "0")
    run_study(tmp_path, "--rows", "input", "--seeds", "0")
    recipe = tmp_path / "runs" / "recipe.json"
    os.utime(recipe, (7, 7))
    # Another study that uses the folder never finds a file that is being written.
    run_study(tmp_path, "--rows", "t5", "--seeds", "0")
    assert recipe.stat().st_mtime == 7


def test_files_are_merged(started, tmp_path):
    """Rows, seeds and tasks of three studies, in the order of `ROWS`."""
    for name, options in {
        "a": ("--rows", "t5", "--seeds", "0", "--glue", "data", "--tasks", "cola"),
        "b": ("--rows", "input", "t5", "--seeds", "0", "1", "--glue", "data", "--tasks", "rte"),
        "c": ("--rows", "diet_abs", "--seeds", "1"),
    }.items():
        run_study(tmp_path, *options, "--runs", str(tmp_path / name))
        (tmp_path / "study.json").replace(tmp_path / f"{name}.other")
    number = len(started)
    merge = ("--merge", *(str(tmp_path / f"{name}.other") for name in "abc"))
    results = run_study(tmp_path, "--rows", "shaw", *merge)
    assert len(started) == number
    assert list(results["rows"]) == ["input", "diet_abs", "t5"]
    assert list(results["rows"]["t5"]["grid"]) == ["0.0005", "0.001", "0.002"]
    assert list(results["rows"]["t5"]["seeds"]) == ["0", "1"]
    assert {seed: set(scores) for seed, scores in results["rows"]["t5"]["glue"].items()} == {
        "0": {"cola", "rte"},
        "1": {"rte"},
    }
    assert "| t5 | 0.001 | 2 |" in (tmp_path / "study.md").read_text()
    changed = json.loads((tmp_path / "b.other").read_text())
    changed["rows"]["t5"]["glue"]["1"]["rte"]["accuracy"] = 0.75
    (tmp_path / "b.other").write_text(json.dumps(changed))
    with pytest.raises(SystemExit, match=r"b\.other: t5, seed 1 rte has other results than"):
        run_study(tmp_path, *merge)
    changed["recipe"]["steps"] = 7
    (tmp_path / "b.other").write_text(json.dumps(changed))
    with pytest.raises(SystemExit, match=r"other values of: steps.*another --merge"):
        run_study(tmp_path, *merge)


def test_a_refused_merge_changes_nothing(started, tmp_path):
    """A file with other results, or of another study, after a file that could be merged."""
    merged, other, output = (tmp_path / name for name in ("a.other", "b.other", "study.json"))
    for row, path in (("shaw", merged), ("input", output)):
        run_study(tmp_path, "--rows", row, "--seeds", "0", "--runs", str(tmp_path / row))
        output.replace(path)
    before = output.read_text()

    def check(change, message):
        changed = json.loads(before)
        change(changed)
        other.write_text(json.dumps(changed))
        with pytest.raises(SystemExit, match=message):
            run_study(tmp_path, "--merge", str(merged), str(other))
        assert output.read_text() == before

    def change_seed(study):
        study["rows"]["input"]["seeds"]["0"]["losses"][-1] = 2.5

    def change_grid(study):
        study["rows"]["input"]["grid"]["0.001"] = 2.5

    check(change_seed, r"b\.other: input, seed 0 has other results than")
    check(change_grid, r"b\.other: input, grid 0\.001 has other results than")
    check(lambda study: study["files"].update({"text": ["c.txt"]}), r"other values of: text\. Use")
    # An older version of the study did not know the setting.
    check(lambda study: study["recipe"].pop("dropout"), r"other values of: dropout\. Use")


def test_other_texts_are_refused(started, tmp_path):
    """Also with another folder for the runs, which another study can still use."""
    run_study(tmp_path, "--rows", "input", "--seeds", "0")
    options = ("--runs", str(tmp_path / "others"), "--text", "c.txt")
    with pytest.raises(SystemExit, match=r"other values of: text\. Use"):
        run_study(tmp_path, "--rows", "t5", "--seeds", "0", *options)
    assert not (tmp_path / "others").exists()


@pytest.mark.parametrize("option", ["--text", "--validation-text"])
def test_a_folder_of_runs_has_one_text(started, tmp_path, option):
    """Another file may have the same name."""
    run_study(tmp_path, "--rows", "input", "--seeds", "0")
    (tmp_path / "study.json").unlink()
    name = {"--text": "a.txt", "--validation-text": "b.txt"}[option]
    with pytest.raises(SystemExit, match=r"other values of: texts\. .*another --runs"):
        run_study(tmp_path, "--rows", "t5", "--seeds", "0", option, f"other/{name}")


def test_the_seed_of_the_grid_is_refused(started, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run_study(tmp_path, "--seeds", "1", "1000")
    assert "must not have 1000" in capsys.readouterr().err


def glue_cell(*scores, losses=(), **others):
    """A row with these results of CoLA and RTE for each seed, and others of CoLA only."""
    tasks = [{"cola": {"m": cola}, "rte": {"accuracy": rte}} for cola, rte in scores]
    glue = {str(seed): of_seed for seed, of_seed in enumerate(tasks)}
    seeds = {
        str(seed): {"learning_rate": 0.5, "losses": [9, loss]} for seed, loss in enumerate(losses)
    }
    return {"seeds": seeds, "glue": glue | {seed: {"cola": {"m": m}} for seed, m in others.items()}}


def page_of(rows):
    machine = {"date": "today", "commit": "abc"}
    results = {"recipe": {"backend": "jax", "glue": {"epochs": 7}}, "machine": machine}
    return study_page.make_page({**results, "rows": rows, "word_frequencies": 6.5})


def test_means_of_tasks_are_compared_with_the_baseline():
    """Seeds without all tasks are left out of the mean."""
    rows = {
        "input": glue_cell((0.1, 0.3), (0.2, 0.4), (0.3, 0.6)),
        "shaw": glue_cell(seed9=0.9),
        "alibi": glue_cell(),
        "fire": glue_cell((-0.3, 0.1)),
        "t5": glue_cell((0.2, 0.4), (0.4, 0.4), (0.5, 0.8), seed9=0.9),
        "t5, rank 8": glue_cell((0.2, 0.5), (0.4, 0.5), (0.5, 0.7)),
        # Without results of its variant, a row is in the table of the encodings only.
        "shaw, rank 8": glue_cell(),
        "kerple": glue_cell((0.4, 0.4)),
    }
    page = page_of(rows)
    assert "    KERAS_BACKEND=jax python -m benchmarks.study \\\n" in page
    assert "        --glue glue --tasks cola rte --output docs/benchmarks/study.json\n" in page
    assert "- Recipe: backend jax\n- Recipe of fine-tuning: epochs 7\n" in page
    encodings, variants = page.partition("## GLUE")[2].split("\n\n|")[1:]
    # In the column of the mean, the differences of t5 are 10, 10 and 20: t = 4 with two degrees of
    # freedom. In CoLA they are 10, 20 and 20: t = 5. In RTE they are 10, 0 and 20: t = sqrt(3).
    assert encodings.splitlines() == [
        "  | cola | rte | mean | difference to `input` |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| t5 | 50.0 ± 29.4 (0.038) | 53.3 ± 23.1 (0.225) | 45.0 ± 18.0 (0.057) | +13.3 |",
        "| kerple | 40.0 | 40.0 | 40.0 | +20.0 |",
        "| input | 20.0 ± 10.0 | 43.3 ± 15.3 | 31.7 ± 12.6 |  |",
        "| fire | -30.0 | 10.0 | -10.0 | -30.0 |",
        "| shaw | 90.0 |  |  |  |",
        "",
        "### Variants of t5",
    ]
    # The differences of the means are 5, 5 and -5: t = 0.5 with two degrees of freedom.
    assert "| 46.7 ± 12.6 (0.667) | +1.7 |" in variants
    assert "difference to `t5`" in variants
    titles = [line for line in page.splitlines() if line.startswith("#")]
    glue = titles.index("## GLUE, development sets")
    assert titles[glue + 1 :] == ["### Encodings", "### Variants of t5"]


def test_a_seed_without_all_tasks_counts_in_its_tasks():
    baseline = glue_cell((0.1, 0.1), (0.2, 0.2), seed9=0.3)
    page = page_of({"input": baseline, "t5": glue_cell((0.2, 0.2), (0.4, 0.4), seed9=0.9)})
    # The differences in CoLA are 10, 20 and 60: t = 30 / (26.5 / sqrt(3)) with two degrees of
    # freedom.
    assert "| t5 | 50.0 ± 36.1 (0.188) | 30.0 ± 14.1 " in page
    # The order of the rows follows the means of all tasks.
    page = page_of({"t5": glue_cell((0.3, 0.3), seed9=0.9), "input": glue_cell((0.4, 0.4))})
    tables = page.partition("## GLUE")[2]
    assert tables.index("| input |") < tables.index("| t5 |")


def test_a_variant_without_encodings_has_a_table():
    page = page_of({"t5, rank 8": glue_cell((0.1, 0.2))})
    assert "| t5, rank 8 | 10.0 | 20.0 | 15.0 |  |" in page
    assert "Losses and tasks" not in page


def test_a_page_without_fine_tuning_has_nothing_of_it():
    page = page_of({"input": glue_cell(losses=(3.5,))})
    assert "GLUE" not in page
    assert "--glue" not in page
    assert "fine-tuning" not in page


def test_the_rank_correlation_of_losses_and_tasks():
    """Means over the seeds are compared, and variants are left out."""
    rows = {
        "input": glue_cell((0.1, 0.1), losses=(5.0,)),
        "t5": glue_cell((0.2, 0.2), (0.2, 0.4), losses=(4.0, 4.5)),
        "shaw": glue_cell((0.9, 0.4), (0.1, 0.5), losses=(1.0, 5.0)),
        "fire": glue_cell((0.6, 0.2), losses=(2.5,)),
        "fire, rank 8": glue_cell((0.7, 0.9), losses=(9.0,)),
    }
    assert "Losses and tasks" not in page_of(rows)
    # Rows without a loss, or without all tasks, do not count.
    rows |= {"alibi": glue_cell((0.1, 0.9)), "rotary": glue_cell(losses=(1.5,), seed9=0.1)}
    assert "Losses and tasks" not in page_of(rows)
    rows["kerple"] = glue_cell((0.4, 0.9), losses=(2.0,), seed9=0.7)
    # The ranks of the losses are 5, 4, 3, 2 and 1. In CoLA the ranks are 1, 2, 3, 5 and 4, with
    # the squared differences 16, 4, 0, 9 and 9: 1 - 6 * 38 / 120. In RTE they are 1, 3, 4, 2 and 5,
    # with 16, 1, 1, 0 and 16. In the mean they are 1, 2, 4, 3 and 5, with 16, 4, 1, 1 and 16.
    table = page_of(rows).partition("### Losses and tasks")[2].splitlines()[4:]
    assert table[0] == "|  | cola | rte | mean |"
    assert table[2] == "| correlation | -0.90 | -0.70 | -0.90 |"
    assert table[3] == "| p | 0.037 | 0.188 | 0.037 |"
    # In CoLA, the correlation is weakest without input: -0.8. In RTE it is -0.4 then.
    assert table[4] == "| p without one encoding | 0.200 | 0.600 | 0.200 |"


@pytest.mark.parametrize("place", range(5))
def test_every_encoding_is_left_out_once(place):
    """Whichever place it has. Without the last point the correlation is -0.6, else -0.8."""
    points = [(1, 0.3), (2, 0.4), (3, 0.1), (4, 0.2), (5, 0.0)]
    rows = {
        name: glue_cell((score, score), losses=(loss,))
        for name, (loss, score) in zip(
            study.ENCODINGS[:5], points[place:] + points[:place], strict=True
        )
    }
    assert page_of(rows).splitlines()[-1] == "| p without one encoding | 0.400 | 0.400 | 0.400 |"


def test_a_single_seed_has_no_test():
    assert study_page.paired({"0": 3.0}, {"0": 2.5, "1": 1.0}) == ("+0.5000", "")
    assert study_page.paired({"0": 3.0, "1": 9.0}, {"0": 2.5}) == ("+0.5000", "")
    assert study_page.paired({"0": 3.0}, {}) == ("", "")


def test_differences_that_cancel():
    assert study_page.paired({"0": 1.0, "1": 2.0}, {"0": 2.0, "1": 1.0}) == ("+0.0000", "1.000")
