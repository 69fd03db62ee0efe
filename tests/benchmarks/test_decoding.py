"""The benchmark of beam search, with tiny models."""

import json

import numpy as np
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


def test_all_libraries_generate_targets_of_the_same_length(small, tmp_path):
    tokenizer = decoding.make_tokenizer()
    assert tokenizer.vocabulary_size() == 70
    translator = decoding.make_translator(tokenizer, LENGTH)
    engine = decoding.make_ctranslate2(translator, tmp_path / "model")
    engines = translator, decoding.make_marian(tokenizer, LENGTH), engine
    calls = decoding.make_calls(engines, batch_size=3, beams=2, length=LENGTH)
    targets = {name: call() for name, call in calls.items()}
    # The first token starts the target.
    assert np.shape(targets["keras_diet"]["decoder_token_ids"]) == (3, LENGTH + 1)
    assert all(np.ravel(targets["keras_diet"]["decoder_padding_mask"]))
    assert tuple(targets["transformers"].shape) == (3, LENGTH + 1)
    assert [len(row.hypotheses[0]) for row in targets["ctranslate2"]] == [LENGTH] * 3


@pytest.mark.any_backend
def test_results_and_page(small, tmp_path, monkeypatch, capsys):
    """Each library has its own times. Ratios are of keras_diet to the others, round by round."""
    measured = []

    def time_in_turn(calls, rounds):
        measured.append((len(calls["keras_diet"]()["decoder_token_ids"]), rounds))
        seconds = {"keras_diet": [0.5, 0.25, 0.75], "transformers": [0.25, 0.5, 0.5]}
        return {**seconds, "ctranslate2": [0.125, 0.125, 0.25]}

    monkeypatch.setattr(decoding.measure, "time_in_turn", time_in_turn)
    output = tmp_path / "decoding.json"
    command = ["--batch-sizes", "1", "3", "--beams", "2", "--length", str(LENGTH)]
    command += ["--rounds", "4", "--output", str(output)]
    decoding.main(command)
    assert measured == [(1, 4), (3, 4)]
    cell = json.loads(output.read_text())["cells"]["3, 2"]
    assert cell["transformers"]["ratio"] == 1.5
    assert cell["ctranslate2"]["ratio"] == 3.0
    page = output.with_suffix(".md").read_text()
    assert "| 3, 2 | 500 | 500 | 125 | 1.50 | 3.00 |" in page
    assert page.rstrip() == capsys.readouterr().out.rstrip()
    # Finished cells are not measured again.
    decoding.main([*command, "--resume"])
    assert len(measured) == 2
