"""The pictures of trained models: `examples/inspect_positions.py`."""

import contextlib
import importlib
import io
import json
from pathlib import Path

import keras_hub
import numpy as np
import pytest

from keras_diet import analysis, models
from tests.models.tiny import VOCABULARY, randomize_weights, tiny_backbone

SCRIPT = Path(__file__).parents[1] / "examples" / "inspect_positions.py"
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


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPT.parent)
        yield importlib.import_module("inspect_positions")


def diet_bert(**arguments):
    preprocessor = models.DietBertMaskedLMPreprocessor(
        models.DietBertTokenizer(VOCABULARY), sequence_length=13, mask_selection_length=2
    )
    backbone = randomize_weights(tiny_backbone(**arguments))
    return models.DietBertMaskedLM(backbone, preprocessor)


@pytest.fixture(scope="module")
def presets(tmp_path_factory):
    """A folder with presets, and the backbone of each."""
    folder = tmp_path_factory.mktemp("presets")
    tasks = {
        "diet_abs": diet_bert(),
        "diet_rel": diet_bert(position_encoding="diet_rel", num_layers=1),
        "input": diet_bert(position_encoding="input", segment_encoding="input"),
        "none": diet_bert(position_encoding="none", segment_encoding="none"),
    }
    for name, task in tasks.items():
        task.save_to_preset(str(folder / name / "preset"))
    return folder, {name: task.backbone for name, task in tasks.items()}


def run(script, folder, *options, text=TEXT):
    """Run the script, which draws into `folder`, and return what it prints and its numbers."""
    output_dir = folder / "figures"
    corpus = folder / "corpus.txt"
    corpus.write_text(text, encoding="utf-8")
    arguments = ["--output-dir", str(output_dir), "--text", str(corpus), "--batch-size", "3"]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        script.main([*map(str, options), *arguments])
    return output.getvalue(), json.loads((output_dir / "figures.json").read_text())


@pytest.fixture(scope="module")
def three_models(script, presets, tmp_path_factory):
    folder = tmp_path_factory.mktemp("three")
    paths = [presets[0] / name / "preset" for name in ("diet_abs", "input", "none")]
    return folder, *run(script, folder, *paths)


def test_makes_every_figure(three_models):
    folder, printed, numbers = three_models
    assert {path.name for path in (folder / "figures").iterdir()} == {*PICTURES, "figures.json"}
    for name in PICTURES:
        assert (folder / "figures" / name).read_bytes().startswith(b"\x89PNG")
    assert list(numbers["models"]) == ["diet_abs", "input", "none"]
    # A model without positions is left out, and the script says so.
    assert "Figures 4, 7 and 8 without none: " in printed
    assert numbers["models"]["none"]["rank_of_position_scores"] is None


def test_numbers_are_those_of_the_models(presets, three_models):
    numbers = three_models[2]["models"]
    backbone = presets[1]["diet_abs"]
    scores = analysis.position_scores(backbone)
    assert numbers["diet_abs"]["position_encoding"] == "diet_abs"
    assert numbers["diet_abs"]["rank_of_position_scores"] == np.full((2, 3), 5).tolist()
    np.testing.assert_allclose(
        numbers["diet_abs"]["distance_variance"], analysis.distance_variance(scores), atol=1e-5
    )
    for name, signed in (("attended_distance", False), ("signed_attended_distance", True)):
        expected = analysis.attended_distance(scores, signed=signed)
        np.testing.assert_allclose(numbers["diet_abs"][name], expected, atol=1e-4)
    np.testing.assert_allclose(
        numbers["diet_abs"]["segment_scores"], analysis.segment_scores(backbone), atol=1e-6
    )
    pairs = analysis.position_similarity(presets[1]["input"])[np.triu_indices(13, 1)]
    similarity = numbers["input"]["position_similarity"]
    assert similarity["mean"] == pytest.approx(pairs.mean(), abs=1e-5)
    assert similarity["quantiles"]["0.75"] == pytest.approx(np.quantile(pairs, 0.75), abs=1e-5)


def test_prints_a_table(three_models):
    _, printed, numbers = three_models
    row = next(line for line in printed.splitlines() if line.startswith("diet_abs"))
    values = numbers["models"]["diet_abs"]
    assert row.split()[1:] == [
        f"{np.mean(values['rank_of_scores'][0]):.2f}",
        "5.00",
        f"{np.mean(values['distance_variance'][0]):.2f}",
        f"{np.mean(values['attended_distance'][0]):.2f}",
        "-",
    ]


def test_bert_of_kerashub_is_compared(script, presets, tmp_path):
    bert = randomize_weights(
        keras_hub.models.BertBackbone(31, 2, 3, 15, 23, dropout=0.0, max_sequence_length=11)
    )
    task = keras_hub.models.BertMaskedLM(
        bert,
        keras_hub.models.BertMaskedLMPreprocessor(
            keras_hub.models.BertTokenizer(VOCABULARY), sequence_length=11
        ),
    )
    task.save_to_preset(str(tmp_path / "bert"))
    _, numbers = run(script, tmp_path, tmp_path / "bert", presets[0] / "diet_rel" / "preset")
    assert numbers["length"] == 11
    assert numbers["models"]["bert"]["position_encoding"] == "input"
    np.testing.assert_array_equal(numbers["models"]["bert"]["rank_of_position_scores"], 5)
    share = np.array(numbers["models"]["diet_rel"]["distance_variance"])
    np.testing.assert_allclose(share, np.ones((1, 3)), atol=1e-6)
