"""The benchmark of long sequences, with tiny layers."""

import json

import pytest

from benchmarks import long_sequences

SMALL = ["--num-heads", "2", "--hidden-dim", "16", "--projection-dim", "8"]


@pytest.mark.any_backend
def test_memory_is_measured_after_a_short_sequence(monkeypatch, capsys):
    calls = []

    def make_steps(kind, length, options, names):
        sizes = (options.num_heads, options.hidden_dim, options.projection_dim)
        (name,) = names
        return {name: lambda: calls.append((kind, length, name, *sizes))}

    def in_own_process(module, *arguments):
        assert module == long_sequences.MODULE
        long_sequences.main([*map(str, arguments)])
        return capsys.readouterr().out.splitlines()[-1]

    def memory_of(step):
        calls.append("measured")
        step()
        return 7.5

    monkeypatch.setattr(long_sequences, "make_steps", make_steps)
    monkeypatch.setattr(long_sequences, "in_own_process", in_own_process)
    monkeypatch.setattr(long_sequences, "memory_of", memory_of)
    sizes = ["--num-heads", "3", "--hidden-dim", "15", "--projection-dim", "7"]
    options = long_sequences.parse_arguments(sizes)
    assert long_sequences.measure_memory("Linformer", 96, "inference", options) == 7.5
    short, long = (("Linformer", length, "inference", 3, 15, 7) for length in (64, 96))
    assert calls == [short, "measured", long]


def test_results_and_their_page(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(long_sequences, "measure_memory", lambda *cell: 7.5)
    monkeypatch.setattr(long_sequences, "LAYERS", ("Linformer",))
    monkeypatch.setattr(long_sequences, "STEPS", ("inference",))
    path = tmp_path / "results.json"
    options = [*SMALL, "--rounds", "1", "--output", str(path)]
    long_sequences.main([*options, "--lengths", "16"])
    page = path.with_suffix(".md").read_text()
    assert page.strip() in capsys.readouterr().out
    assert page.count("| 16 |") == 2
    assert "| milliseconds | Linformer, inference |" in page
    assert "num_heads 2" in page
    assert "| 16 | 7.5 |" in page

    # `--resume` does not measure a length again.
    measured = json.loads(path.read_text())["cells"]
    monkeypatch.setattr(long_sequences, "measure_length", lambda length, options: measured["16"])
    long_sequences.main([*options, "--resume", "--lengths", "16", "32"])
    assert json.loads(path.read_text())["cells"] == measured | {"32": measured["16"]}
    with pytest.raises(SystemExit, match="num_heads"):
        long_sequences.main([*options, "--resume", "--num-heads", "4"])
