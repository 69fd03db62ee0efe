"""Files from before the redesign of the library load, and their outputs have not changed."""

from pathlib import Path

import keras
import keras_hub
import numpy as np
import pytest

import keras_diet
from tests.helpers import assert_close

pytestmark = pytest.mark.any_backend
FOLDER = Path(__file__).parent / "data" / "before_redesign"
TEXTS = (["The quick brown fox", "lazy dogs jump"], ["the fox jumped over", "the dog"])


@pytest.fixture
def expected():
    return np.load(FOLDER / "expected.npz")


def test_preset_loads(expected):
    task = keras_diet.models.DietBertTextClassifier.from_preset(FOLDER / "preset")
    assert_close(task.predict(TEXTS, verbose=0), expected["preset_logits"])


def test_preset_loads_by_the_base_class_of_keras_hub(expected):
    task = keras_hub.models.TextClassifier.from_preset(str(FOLDER / "preset"))
    assert isinstance(task, keras_diet.models.DietBertTextClassifier)
    assert_close(task.predict(TEXTS, verbose=0), expected["preset_logits"])


def test_keras_file_loads(expected):
    model = keras.saving.load_model(FOLDER / "model.keras")
    inputs = [expected[name] for name in ("x", "segments", "mask")]
    assert_close(model.predict(inputs, verbose=0), expected["output"], 1e-4)
