"""The benchmark of beam search, with tiny models."""

import concurrent.futures
import json
from types import SimpleNamespace

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


@pytest.mark.any_backend
def test_all_libraries_get_the_same_sources_and_beams(small, monkeypatch):
    """Here each library returns what it gets."""
    monkeypatch.setattr(
        decoding.models.DietTransformerSeq2SeqLM,
        "generate",
        lambda model, inputs, stop_token_ids: (inputs, model.sampler, stop_token_ids),
    )
    marian = SimpleNamespace(generate=lambda sources, **options: (sources, options))
    translated = []
    engine = SimpleNamespace(
        translate_batch=lambda *sources, **options: translated.append((*sources, options))
    )
    monkeypatch.setattr(decoding, "engine", engine, raising=False)
    tokenizer = decoding.make_tokenizer()
    translator = decoding.make_translator(tokenizer, LENGTH)
    with concurrent.futures.ThreadPoolExecutor() as process:
        calls = decoding.make_calls((translator, marian, process), 3, beams=4, length=LENGTH)
        calls["ctranslate2"]()

    inputs, sampler, stop_token_ids = calls["keras_diet"]()
    sources = inputs["encoder_token_ids"]
    assert sources.shape == inputs["encoder_padding_mask"].shape == (3, LENGTH)
    assert np.all(inputs["encoder_padding_mask"])
    assert (sampler.num_beams, stop_token_ids) == (4, None)

    tokens, options = calls["transformers"]()
    assert tokens.tolist() == sources.tolist()
    assert options.pop("attention_mask").tolist() == inputs["encoder_padding_mask"].tolist()
    lengths = {"min_new_tokens": LENGTH, "max_new_tokens": LENGTH}
    assert options == {"num_beams": 4, "do_sample": False, **lengths}

    ((pieces, options),) = translated
    ids = [[tokenizer.token_to_id(piece) for piece in row] for row in pieces]
    assert ids == sources.tolist()
    lengths = {"min_decoding_length": LENGTH, "max_decoding_length": LENGTH}
    assert options == {"beam_size": 4, **lengths}


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
