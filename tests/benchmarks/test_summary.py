"""The summary of step times holds what was measured against what we aim at."""

import json

import pytest

from benchmarks import summary


def save(folder, name, backend, xla, **ratios):
    rows = {"input": 1.0, **ratios}
    cell = {
        "size": "base",
        "length": 128,
        "step": "inference",
        "batch_size": 8,
        "rows": {
            row: {"ratio_to_input": ratio, "gemm_share": 0.9 / ratio} for row, ratio in rows.items()
        },
    }
    results = {"machine": {"backend": backend}, "settings": {"xla": xla}, "cells": {"cell": cell}}
    (folder / f"step_time_{name}.json").write_text(json.dumps(results))


def test_misses_are_bold(tmp_path, capsys):
    save(tmp_path, "torch", "torch", None, kerashub=1.1, diet_abs=1.0, diet_rel=1.1)
    save(tmp_path, "other", "tensorflow", False, kerashub=1.1, diet_abs=1.1)
    summary.main([str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    columns = ["cell", "backend", "diet_abs", "diet_rel"]
    columns += ["diet_abs / KerasHub", "diet_rel / KerasHub", "share of the rate"]
    assert rows[0] == columns
    cell = "base, 8 x 128, inference"
    assert rows[2] == [cell, "tensorflow without XLA", "**1.10**", "", "1.00", "", "**82%**"]
    assert rows[3] == [cell, "torch", "1.00", "**1.10**", "**0.91**", "**1.00**", "90%"]


def test_folder_without_results(tmp_path, capsys):
    with pytest.raises(SystemExit):
        summary.main([str(tmp_path)])
    assert "step_time_*.json" in capsys.readouterr().err
