"""The pictures of trained models: `examples/paper/inspect_positions.py`."""

import contextlib
import io
import json
from types import SimpleNamespace

import keras_hub
import numpy as np
import pytest

from examples.paper.tests.helpers import fixture_of
from keras_diet import analysis, models
from tests.models.tiny import VOCABULARY, randomize_weights, tiny_backbone

script = fixture_of("inspect_positions")
PICTURES = [
    "figure_2_rank_of_scores.png",
    "figure_4_position_scores.png",
    "figure_5_position_similarity.png",
    "figure_6_position_and_segment_scores.png",
    "figure_7_shifting_patterns.png",
    "figure_8_rank_of_position_scores.png",
]
pytestmark = pytest.mark.any_backend
TEXT = "\n\n".join(["the quick brown fox jumped over the lazy dogs . a bird sings"] * 20)


def diet_bert(**arguments):
    preprocessor = models.DietBertMaskedLMPreprocessor(
        models.DietBertTokenizer(VOCABULARY), sequence_length=13, mask_selection_length=2
    )
    backbone = randomize_weights(tiny_backbone(**arguments))
    return models.DietBertMaskedLM(backbone, preprocessor)


def bert():
    """KerasHub's own BERT, which has shorter sequences."""
    tokenizer = keras_hub.models.BertTokenizer(VOCABULARY)
    preprocessor = keras_hub.models.BertMaskedLMPreprocessor(tokenizer, sequence_length=11)
    backbone = keras_hub.models.BertBackbone(31, 2, 3, 15, 23, 0.0, max_sequence_length=11)
    return keras_hub.models.BertMaskedLM(randomize_weights(backbone), preprocessor)


@pytest.fixture(scope="module")
def finished(script, tmp_path_factory):
    """The folder of the figures, the models, what the script prints, and its numbers."""
    folder = tmp_path_factory.mktemp("figures")
    tasks = {
        "diet_abs": diet_bert(),
        "diet_rel": diet_bert(position_encoding="diet_rel", num_layers=1),
        "bert": bert(),
        "none": diet_bert(position_encoding="none", segment_encoding="none"),
    }
    for name, task in tasks.items():
        task.save_to_preset(str(folder / name / "preset"))
    (folder / "corpus.txt").write_text(TEXT, encoding="utf-8")
    figures = folder / "figures"
    arguments = [str(folder / name / "preset") for name in tasks]
    arguments += ["--text", str(folder / "corpus.txt"), "--output-dir", str(figures)]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        script.main([*arguments, "--batch-size", "3"])
    backbones = {name: task.backbone for name, task in tasks.items()}
    return figures, backbones, output.getvalue(), json.loads((figures / "figures.json").read_text())


def test_makes_every_figure(finished):
    figures, backbones, printed, numbers = finished
    assert {path.name for path in figures.iterdir()} == {*PICTURES, "figures.json"}
    for name in PICTURES:
        assert (figures / name).read_bytes().startswith(b"\x89PNG")
    assert list(numbers["models"]) == list(backbones)
    # A model without positions is left out, and the script says so.
    assert "Figures 4, 7 and 8 without none: " in printed
    assert numbers["models"]["none"]["rank_of_position_scores"] is None


def test_numbers_are_those_of_the_models(finished):
    _, backbones, _, numbers = finished
    # All models have the length of the shortest one.
    assert numbers["length"] == 11
    of = numbers["models"]
    scores = analysis.position_scores(backbones["diet_abs"], 11)
    expected = {
        "rank_of_position_scores": np.full((2, 3), 5),
        "distance_variance": analysis.distance_variance(scores),
        "attended_distance": analysis.attended_distance(scores),
        "signed_attended_distance": analysis.attended_distance(scores, signed=True),
        "segment_scores": analysis.segment_scores(backbones["diet_abs"]),
    }
    for name, array in expected.items():
        np.testing.assert_allclose(of["diet_abs"][name], array, atol=1e-4)
    np.testing.assert_allclose(of["diet_rel"]["distance_variance"], np.ones((1, 3)), atol=1e-6)
    np.testing.assert_array_equal(of["bert"]["rank_of_position_scores"], 5)
    encodings = {name: values["position_encoding"] for name, values in of.items()}
    assert encodings == {name: name for name in backbones} | {"bert": "input"}
    pairs = analysis.position_similarity(backbones["bert"])[np.triu_indices(11, 1)]
    similarity = of["bert"]["position_similarity"]
    assert similarity["mean"] == pytest.approx(pairs.mean(), abs=1e-5)
    assert similarity["quantiles"]["0.75"] == pytest.approx(np.quantile(pairs, 0.75), abs=1e-5)


def test_sequences_of_a_batch_are_full(script, finished):
    tokenizer = models.DietBertTokenizer(VOCABULARY)
    corpus = str(finished[0].parent / "corpus.txt")
    options = SimpleNamespace(text=[corpus], length=7, batch_size=3, seed=0)
    token_ids = script.common.draw_batch(tokenizer, options)["token_ids"]
    assert token_ids.shape == (3, 7)
    ends = [tokenizer.cls_token_id, tokenizer.sep_token_id]
    assert token_ids[:, [0, -1]].tolist() == [ends] * 3
    assert not np.isin(token_ids[:, 1:-1], [*ends, tokenizer.pad_token_id]).any()
