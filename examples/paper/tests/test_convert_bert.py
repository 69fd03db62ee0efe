"""From BERT to DIET on a small scale: `examples/paper/convert_bert.py`."""

import contextlib
import io
import json

import keras_hub
import numpy as np
import pytest

from examples.paper.tests.helpers import fixture_of
from keras_diet import models
from tests.models.tiny import SIZES, VOCABULARY, randomize_weights

# What it calls has tests on every backend.
pytestmark = pytest.mark.any_backend
script = fixture_of("convert_bert")
SMALL = ["--sequence-length", "11", "--batch-size", "4", "--validation-sequences", "8"]
TEXT = "\n\n".join(
    f"the quick brown fox jumped over the lazy dogs . {word} birds sing" for word in VOCABULARY * 4
)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A folder with a preset of a BERT and a text."""
    folder = tmp_path_factory.mktemp("bert")
    randomize_weights(keras_hub.models.BertBackbone(**SIZES)).save_to_preset(str(folder))
    keras_hub.models.BertTokenizer(VOCABULARY).save_to_preset(str(folder))
    (folder / "text.txt").write_text(TEXT)
    return folder


def run(script, bert, output_dir, *options):
    arguments = [str(bert), "--text", str(bert / "text.txt"), "--output-dir", str(output_dir)]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        script.main([*arguments, *SMALL, *options])
    return output.getvalue(), json.loads((output_dir / "survival.json").read_text())


@pytest.fixture(scope="module")
def finished(script, bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    options = ("--steps", "6", "--learning-rate", "0.02", "--position-encoding")
    return folder, *run(script, bert, folder, *options, "diet_abs", "input", "none")


def test_healing_helps(finished):
    _, _, results = finished
    for name in ("diet_abs", "none"):
        before, after = (results[name][stage]["tokens"] for stage in ("before", "after"))
        assert -1 < before < after < 1


def test_presets_are_the_healed_models(script, bert, finished):
    folder, _, results = finished
    tokenizer = models.DietBertTokenizer.from_preset(str(folder / "diet_abs" / "preset"))
    assert tokenizer.get_vocabulary() == VOCABULARY
    backbone = models.DietBertBackbone.from_preset(str(folder / "diet_abs" / "preset"))
    assert backbone.position_encoding == "diet_abs"
    assert backbone.max_sequence_length == 11
    arguments = script.parse_arguments(["--text", str(bert / "text.txt"), *SMALL])
    validation, _ = script.load_sequences(arguments, tokenizer)
    inputs = script.as_inputs(validation, tokenizer)
    original = models.DietBertBackbone.from_bert(
        bert, "input", segment_encoding="input", max_sequence_length=11
    )
    expected = script.outputs_of(original, inputs, 4)
    found = script.survival(backbone, inputs, expected, 4)
    assert found == pytest.approx(results["diet_abs"]["after"], abs=1e-4)


def test_cosines_leave_out_padding(script):
    class Model:
        def predict(self, inputs, **kwargs):
            return {"sequence_output": inputs["outputs"]}

    mask = np.array([[1, 1, 0]])
    outputs = np.array([[[1.0, 0.0], [0.0, 2.0], [5.0, 5.0]]])
    expected = np.array([[[3.0, 0.0], [1.0, 1.0], [-5.0, 5.0]]])
    found = script.survival(Model(), {"padding_mask": mask, "outputs": outputs}, expected, 1)
    assert found["tokens"] == pytest.approx((1 + 0.5**0.5) / 2)
    # The means are (0.5, 1) and (2, 0.5).
    assert found["sentences"] == pytest.approx(1.5 / (1.25 * 4.25) ** 0.5)
