"""Benchmarks that measure time, and memory in a process of its own, with tiny models."""

import json
import pickle

import pytest

from benchmarks import bert_models, long_sequences, measure, time_and_memory

pytestmark = pytest.mark.any_backend
TINY_BERT = ("--size", "tiny", "--dropout", "0.25", "--dtype", "mixed_bfloat16")
# For each benchmark: its module, what makes a model and the settings that it gets, the options, an
# option that adds cells, the rows of each cell, and the line of the page with the reference.
BENCHMARKS = {
    "attention_implementation": (
        time_and_memory,
        (bert_models, "make_model", ("tiny", 16, "mixed_bfloat16", 0.25)),
        ["attention_implementation", *TINY_BERT, "--shapes", "1x16", "--steps", "inference"],
        ["--shapes", "1x16", "1x24"],
        {
            "diet_abs, 1 x 16 tokens, inference": [
                *("full", "features", "blockwise", "hugging_face"),
            ],
            "diet_rel, 1 x 16 tokens, inference": ["full", "blockwise"],
        },
        "| diet_abs, 1 x 16 tokens, inference | full | {} | 1.00 (1.00 - 1.00) | 7 |",
    ),
    "recompute": (
        time_and_memory,
        (bert_models, "make_model", ("tiny", 16, "mixed_bfloat16", 0.25)),
        [
            *("recompute", *TINY_BERT, "--shapes", "3x16", "--steps", "training"),
            *("--encodings", "diet_abs"),
        ],
        ["--encodings", "diet_abs", "diet_rel"],
        {"diet_abs, 3 x 16 tokens, training": ["none", "attention", "block"]},
        "| diet_abs, 3 x 16 tokens, training | none | {} | 1.00 (1.00 - 1.00) | 7 |",
    ),
    "long_sequences": (
        long_sequences,
        (long_sequences.layers, "LinformerMultiHeadAttention", (5, 16, 7)),
        ["--num-heads", "3", "--hidden-dim", "15", "--projection-dim", "7", "--lengths", "16"],
        ["--lengths", "16", "24"],
        {"16": [f"{k}, {s}" for s in long_sequences.STEPS for k in long_sequences.LAYERS]},
        "| 16 | 7.2 | 7.2 | 7.2 | 7.2 | 7.2 | 7.2 |",
    ),
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_results_their_page_and_the_process_of_a_cell(name, tmp_path, monkeypatch, capsys):
    benchmark, (module, name, settings), options, more, cells, line = BENCHMARKS[name]
    monkeypatch.setattr(bert_models, "VOCABULARY_SIZE", 31)
    made, make = [], getattr(module, name)
    in_processes = []

    def recorded(*arguments, **kwargs):
        made.append(arguments[1:])
        return make(*arguments, **kwargs)

    def in_own_process(function, *arguments):
        made.clear()
        found = function(*pickle.loads(pickle.dumps(arguments)))
        in_processes.append([*made])
        return found

    monkeypatch.setattr(module, name, recorded)
    monkeypatch.setattr(measure, "in_own_process", in_own_process)
    # A step that is measured runs.
    monkeypatch.setattr(measure, "memory_of", lambda step: 7.25 if step() is not None else 0)
    output = tmp_path / "new" / "results.json"
    command = [*options, "--rounds", "1", "--output", str(output)]
    benchmark.main(command)
    page = output.with_suffix(".md").read_text()
    assert page.rstrip() == capsys.readouterr().out.rstrip()
    results = json.loads(output.read_text())["PyTorch"]
    found = results["cells"]
    assert {name: list(rows) for name, rows in found.items()} == cells
    for row in (row for rows in found.values() for row in rows.values()):
        assert row["milliseconds"] > 0
        assert row["mib"] == 7.25
    reference = next(iter(next(iter(found.values())).values()))
    assert line.format(f"{reference['milliseconds']:.0f}") in page

    # An earlier, small model has loaded the libraries. Some rows do not have the layer.
    for models in filter(None, in_processes):
        assert len(models) == 2
        assert models[0] != models[1] == settings

    # `--resume` measures what is missing, and needs the same settings.
    made.clear()
    benchmark.main([*command, "--resume"])
    assert not made
    benchmark.main([*command, "--resume", *more])
    assert made
    resumed = json.loads(output.read_text())["PyTorch"]["cells"]
    assert len(resumed) == 2 * len(cells)
    assert {name: resumed[name] for name in cells} == results["cells"]
    with pytest.raises(SystemExit, match="other values of: rounds"):
        benchmark.main([*command, "--resume", "--rounds", "2"])
