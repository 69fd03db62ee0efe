"""Our translator that begins with the initial weights of a Marian model."""

import importlib
import json

import keras
import numpy as np
import pytest

pytest.importorskip("sacrebleu")

from examples.paper.marian import make_marian
from examples.paper.tests.test_translation_peer import SMALL, few_numbers

pytestmark = pytest.mark.any_backend
OPTIONS = [*SMALL, "--position-encoding", "sinusoidal", "--post-norm", "--epochs", "2"]


@pytest.fixture
def script(monkeypatch):
    script = importlib.import_module("examples.paper.translation_from_marian")
    monkeypatch.setattr(script.translate, "load_text", few_numbers)
    return script


def test_it_begins_with_the_weights_of_the_peer_and_writes_the_results(
    script, monkeypatch, tmp_path
):
    import torch

    begun, train = [], script.translate.train

    def checked(translator, pairs, validation_pairs, arguments):
        torch.manual_seed(3)
        marian = make_marian(arguments, translator.preprocessor.tokenizer)
        # The outputs are equal, so all weights are.
        inputs = {
            "encoder_token_ids": np.array([[5, 9, 7, 2]]),
            "encoder_padding_mask": np.ones((1, 4), "int32"),
            "decoder_token_ids": np.array([[1, 11, 4]]),
            "decoder_padding_mask": np.ones((1, 3), "int32"),
        }
        logits = keras.ops.convert_to_numpy(translator(inputs))
        with torch.inference_mode():
            expected = marian.eval()(
                input_ids=torch.tensor(inputs["encoder_token_ids"]),
                decoder_input_ids=torch.tensor(inputs["decoder_token_ids"]),
            ).logits.numpy()
        np.testing.assert_allclose(logits, expected, atol=1e-5)
        begun.append(translator)
        return train(translator, pairs, validation_pairs, arguments)

    monkeypatch.setattr(script.translate, "train", checked)
    script.main([*OPTIONS, "--output-dir", str(tmp_path)])
    (translator,) = begun
    sampler = translator.sampler
    assert (sampler.num_beams, sampler.length_penalty) == (2, 0.7)
    assert json.loads((tmp_path / "bleu.json").read_text()).keys() == {"bleu", "exact", "signature"}
    assert len((tmp_path / "translations.txt").read_text().splitlines()) == 5
    assert len((tmp_path / "history.csv").read_text().splitlines()) == 3
