"""Table 6 of the paper: the parameters of its masked language models, to the printed digit."""

import functools
import gc
from pathlib import Path

import pytest

from keras_diet.layers import POSITION_ENCODINGS
from keras_diet.models import DietBertBackbone, DietBertMaskedLM

VOCABULARY = {"English": 30_522, "multilingual": 120_000}
MODELS = {
    "Devlin": {"position_encoding": "input", "segment_encoding": "input"},
    "Shaw": {"position_encoding": "shaw", "segment_encoding": "input"},
    "DIET-REL": {"position_encoding": "diet_rel"},
    "DIET-REL (share)": {"position_encoding": "diet_rel", "sharing": "layer-wise"},
    "DIET-ABS": {"position_encoding": "diet_abs", "rank": 128, "sharing": "none"},
    "DIET-ABS (share)": {"position_encoding": "diet_abs", "rank": 128},
}
MILLIONS = {
    "Devlin": ("110.1", "178.9"),
    "Shaw": ("112.9", "181.7"),
    "DIET-REL": ("109.9", "178.7"),
    "DIET-REL (share)": ("109.7", "178.5"),
    "DIET-ABS": ("128.6", "197.4"),
    "DIET-ABS (share)": ("111.3", "180.1"),
}


pytestmark = [pytest.mark.any_backend, pytest.mark.usefixtures("zero_initializers")]


@pytest.fixture(autouse=True, scope="module")
def few_objects():
    """Collecting garbage is quick, since what is there before is left out."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def free_memory(few_objects):
    """A model holds up to 0.8 GB, and Keras's references go round in circles."""
    yield
    gc.collect()


@pytest.mark.parametrize(
    ("model", "language"),
    [*((model, "English") for model in MODELS), ("DIET-ABS", "multilingual")],
)
def test_parameters(model, language):
    backbone = DietBertBackbone(
        VOCABULARY[language],
        num_layers=12,
        num_heads=12,
        hidden_dim=768,
        intermediate_dim=3072,
        **MODELS[model],
    )
    parameters = DietBertMaskedLM(backbone).count_params()
    expected = dict(zip(VOCABULARY, MILLIONS[model], strict=True))
    assert f"{parameters / 1e6:.1f}" == expected[language]


# docs/encodings/README.md names these numbers.
POSITIONS = {
    "diet_abs": 786_432,
    "diet_rel": 147_312,
    "alibi": 0,
    "kerple": 24,
    "sandwich": 0,
    "fire": 5_544,
    "rotary": 0,
    "transformer_xl": 7_096_320,
    "t5": 384,
    "tupe_abs": 1_574_424,
    "tupe_rel": 1_574_808,
    "shaw": 3_147_264,
    "input": 393_216,
    "diet_abs_input": 1_179_648,
    "sinusoidal": 0,
    "none": 0,
}


def test_all_encodings_are_counted():
    assert set(POSITIONS) == set(POSITION_ENCODINGS)


@functools.cache
def parameters(position_encoding):
    return DietBertBackbone(2, 12, 12, 768, 8, position_encoding=position_encoding).count_params()


@pytest.mark.parametrize("position_encoding", POSITIONS)
def test_parameters_of_positions(position_encoding):
    expected = POSITIONS[position_encoding]
    assert parameters(position_encoding) - parameters("none") == expected
    page = Path(__file__).parents[2] / "docs" / "encodings" / "README.md"
    (row,) = [
        line for line in page.read_text().splitlines() if f'`"{position_encoding}"`](' in line
    ]
    assert f"| {expected:,} " in row
