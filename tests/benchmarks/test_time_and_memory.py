"""Benchmarks that measure time, and memory in a process of its own, with tiny models."""

import json
import pickle

import pytest

from benchmarks import (
    attention_implementations,
    bert_models,
    long_sequences,
    measure,
    recomputation,
)

pytestmark = pytest.mark.any_backend
TINY_BERT = ("--size", "tiny", "--dropout", "0.25", "--dtype", "mixed_bfloat16")
# For each benchmark: what makes a model and the settings that it gets, the options, an option that
# adds cells, the rows of each cell, and the lines of the page with the reference of the ratios.
BENCHMARKS = {
    attention_implementations: (
        (bert_models, "make_model", ("tiny", 16, "mixed_bfloat16", 0.25)),
        [*TINY_BERT, "--lengths", "16", "--steps", "inference"],
        ["--lengths", "16", "24"],
        {
            "diet_abs, 16 tokens, inference": ["full", "features", "blockwise", "hugging_face"],
            "diet_rel, 16 tokens, inference": ["full", "blockwise"],
        },
        "| full | {} | 1.00 (1.00 - 1.00) | 7 |",
    ),
    recomputation: (
        (bert_models, "make_model", ("tiny", 16, "mixed_bfloat16", 0.25)),
        [*TINY_BERT, "--length", "16", "--batch-size", "3"],
        ["--encodings", "diet_abs", "diet_rel"],
        {"diet_abs": ["none", "attention", "block"]},
        "| diet_abs | none | {} | 1.00 (1.00 - 1.00) | 7 |",
    ),
    long_sequences: (
        (long_sequences.layers, "LinformerMultiHeadAttention", (5, 16, 7)),
        ["--num-heads", "3", "--hidden-dim", "15", "--projection-dim", "7", "--lengths", "16"],
        ["--lengths", "16", "24"],
        {"16": [f"{k}, {s}" for s in long_sequences.STEPS for k in long_sequences.LAYERS]},
        "| 16 | 7.2 | 7.2 | 7.2 | 7.2 | 7.2 | 7.2 |",
    ),
}


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda module: module.MODULE)
def test_results_their_page_and_the_process_of_a_cell(benchmark, tmp_path, monkeypatch, capsys):
    (module, name, settings), options, more, cells, line = BENCHMARKS[benchmark]
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
    found = {name: cell.get("rows", cell) for name, cell in results["cells"].items()}
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
