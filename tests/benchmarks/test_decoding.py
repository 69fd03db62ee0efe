"""The benchmark of beam search, with tiny models."""

import concurrent.futures
import json

import pytest

pytest.importorskip("ctranslate2")
pytest.importorskip("transformers")

from benchmarks import decoding

LENGTH = 5


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(decoding, "VOCABULARY_SIZE", 70)
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
    monkeypatch.setattr(decoding, "SIZES", sizes)


def thread_for_process(number, context, initializer, arguments):
    """A thread starts faster."""
    return concurrent.futures.ThreadPoolExecutor(number, "", initializer, arguments)


@pytest.mark.any_backend
def test_results_and_page(small, tmp_path, monkeypatch, capsys):
    """Each library has its own times. Ratios are of keras_diet to the others, round by round."""
    measured = []

    def time_in_turn(calls, rounds):
        measured.append((len(calls["keras_diet"]()["decoder_token_ids"]), rounds))
        seconds = {"keras_diet": [0.5, 0.25, 0.75], "transformers": [0.25, 0.5, 0.5]}
        return {**seconds, "ctranslate2": [0.125, 0.125, 0.25]}

    monkeypatch.setattr(decoding.measure, "time_in_turn", time_in_turn)
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", thread_for_process)
    monkeypatch.setenv("CT2_USE_MKL", "0")
    output = tmp_path / "decoding.json"
    command = ["--batch-sizes", "1", "3", "--beams", "2", "--length", str(LENGTH)]
    command += ["--rounds", "4", "--output", str(output)]
    decoding.main(command)
    assert measured == [(1, 4), (3, 4)]
    cell = json.loads(output.read_text())["PyTorch"]["cells"]["3, 2"]
    assert cell["transformers"]["ratio"] == 1.5
    assert cell["ctranslate2"]["ratio"] == 3.0
    assert output.with_suffix(".md").read_text() == capsys.readouterr().out
    # Finished cells are not measured again.
    decoding.main([*command, "--resume"])
    assert len(measured) == 2
