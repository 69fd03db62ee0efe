"""The benchmark of long sequences, with tiny layers."""

import json

import pytest

from benchmarks import long_sequences

SMALL = ["--num-heads", "2", "--hidden-dim", "16", "--projection-dim", "8"]


@pytest.fixture
def own_process(monkeypatch, capsys):
    """Run the commands of other processes in this one, with measured steps instead of memory."""
    commands, steps = [], []

    def in_own_process(module, *arguments):
        assert module == long_sequences.MODULE
        commands.append(arguments)
        capsys.readouterr()
        long_sequences.main([*map(str, arguments)])
        return capsys.readouterr().out.splitlines()[-1]

    def memory_of(step):
        steps.append(step)
        return 7.5

    monkeypatch.setattr(long_sequences, "in_own_process", in_own_process)
    monkeypatch.setattr(long_sequences, "memory_of", memory_of)
    return commands, steps


@pytest.mark.parametrize("kind", long_sequences.LAYERS)
def test_memory_is_measured_after_a_short_sequence(own_process, monkeypatch, kind):
    commands, steps = own_process
    lengths, called = [], []
    make_steps = long_sequences.make_steps

    def record(kind, length, options, names):
        lengths.append(length)
        (name,) = names
        step = make_steps(kind, length, options, names)[name]
        return {name: lambda: called.append(length) or step()}

    monkeypatch.setattr(long_sequences, "make_steps", record)
    options = long_sequences.parse_arguments(SMALL)
    assert long_sequences.measure_memory(kind, 96, "inference", options) == 7.5
    (command,) = commands
    assert command[-4:] == ("--cell", kind, 96, "inference")
    # The short sequence has run. The long one is left to `memory_of`.
    assert (lengths, called) == ([64, 96], [64])
    assert steps[0]().shape == (1, 96, 16)


def test_results_and_their_page(own_process, monkeypatch, tmp_path, capsys):
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


def test_resume_needs_a_file():
    with pytest.raises(SystemExit):
        long_sequences.main(["--resume"])
