"""The summary compares the results with their targets."""

import json
from pathlib import Path

import pytest

from benchmarks import (
    attention_implementations,
    decoding,
    long_sequences,
    multilingual,
    question_answering,
    recomputation,
    step_time_results,
    study_page,
    summary,
    tpu_compile_results,
    translation,
)

pytestmark = pytest.mark.any_backend


def save(folder, name, machine, settings, **cell):
    """Write results with one cell. Its rows are dictionaries."""
    results = {"machine": {"device": "cpu", **machine}, "cells": {"cell": cell}}
    results["settings"] = {"dtype": "float32", **settings}
    (folder / f"{name}.json").write_text(json.dumps(results))


def save_ratios(folder, backend, xla=None, **ratios):
    rows = {
        row: {"ratio_to_input": ratio, "gemm_share": 0.9 / ratio}
        for row, ratio in {"input": 1.0, **ratios}.items()
    }
    cell = {"size": "base", "length": 128, "step": "inference", "batch_size": 8, "rows": rows}
    save(folder, f"step_time_{backend}", {"backend": backend}, {"xla": xla}, **cell)


def save_lengths(folder, length, step, **rows):
    rows = {name: {"ratio_to_full": time, "mib": mib} for name, (time, mib) in rows.items()}
    cell = {"length": length, "step": step, "encoding": "diet_abs", "rows": rows}
    name = f"attention_implementations_{length}"
    save(folder, name, {"backend": "jax"}, {"size": "small"}, **cell)


def table_of(folder, capsys):
    """Return the cells of the table that the command prints, a list for each line."""
    summary.main([str(folder)])
    lines = capsys.readouterr().out.splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_misses_are_bold(tmp_path, capsys):
    save_ratios(tmp_path, "torch", kerashub=1.1, diet_abs=1.0, diet_rel=1.1)
    save_ratios(tmp_path, "tensorflow", xla=False, kerashub=1.1, diet_abs=1.1)
    rows = table_of(tmp_path, capsys)
    columns = ["cell", "backend", "diet_abs", "diet_rel"]
    columns += ["diet_abs / KerasHub", "diet_rel / KerasHub", "share of the rate"]
    assert rows[0] == columns
    cell = "base, 8 x 128, inference"
    assert rows[2] == [cell, "tensorflow without XLA", "**1.100**", "", "1.000", "", "**81.8%**"]
    assert rows[3] == [cell, "torch", "1.000", "**1.100**", "**0.909**", "**1.000**", "90.0%"]


def test_long_sequences_have_a_table(tmp_path, capsys):
    save_ratios(tmp_path, "torch", diet_abs=1.0)
    full, features, blockwise = (1.0, 800.0), (1.2, 90.0), (1.05, 101.0)
    ways = {"full": full, "features": features, "blockwise": blockwise, "hugging_face": full}
    save_lengths(tmp_path, 8192, "inference", **ways)
    save_lengths(tmp_path, 4096, "training", full=full, blockwise=(3.0, 201.0))
    save_lengths(tmp_path, 2048, "inference", full=full, blockwise=(3.0, 900.0))
    rows = table_of(tmp_path, capsys)[4:]
    assert rows[0][3:] == ["implementation", "time / full", "memory / full"]
    assert rows[2:] == [
        ["small, 1 x 2048, inference", "diet_abs", "jax", "blockwise", "3.00", "1.125"],
        ["small, 1 x 4096, training", "diet_abs", "jax", "blockwise", "3.00", "**0.251**"],
        ["small, 1 x 8192, inference", "diet_abs", "jax", "features", "**1.20**", "0.113"],
        ["small, 1 x 8192, inference", "diet_abs", "jax", "blockwise", "1.05", "**0.126**"],
    ]


FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks"


def test_the_page_has_the_summary_of_its_files():
    page = (FOLDER / "README.md").read_text()
    assert "\n".join(summary.make_table(summary.read_cells(FOLDER))) in page
    lengths = summary.read_cells(FOLDER, "attention_implementations")
    assert "\n".join(summary.make_table_of_lengths(lengths)) in page


MAKERS = {
    "attention_implementations": attention_implementations.make_page,
    "decoding": decoding.make_page,
    "long_sequences": long_sequences.make_page,
    "multilingual": multilingual.make_page,
    "question_answering": question_answering.make_page,
    "recomputation": recomputation.make_page,
    "other_encodings": step_time_results.make_page,
    "step_time": step_time_results.make_page,
    "study": study_page.make_page,
    "tpu_compile": tpu_compile_results.make_page,
    "translation": translation.make_page,
}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_pages_are_made_from_their_files(path):
    (make_page,) = (make for name, make in MAKERS.items() if path.name.startswith(name))
    page = make_page(json.loads(path.read_text(encoding="utf-8")))
    assert path.with_suffix(".md").read_text(encoding="utf-8") == page.rstrip() + "\n"
