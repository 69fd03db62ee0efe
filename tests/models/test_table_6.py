"""Table 6 of the paper: the parameters of its masked language models, to the printed digit."""

import functools
from pathlib import Path

import pytest

from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS
from keras_diet.models import DietBertBackbone, DietBertMaskedLM

AT_INPUT, MULTILINGUAL = {"segment_encoding": "input"}, 120_000
# The encoding, the size of the vocabulary, and millions of parameters.
MODELS = {
    "Devlin": ({"position_encoding": "input", **AT_INPUT}, 30_522, "110.1"),
    "Shaw": ({"position_encoding": "shaw", **AT_INPUT}, 30_522, "112.9"),
    "DIET-REL": ({"position_encoding": "diet_rel"}, 30_522, "109.9"),
    "DIET-REL (share)": (
        {"position_encoding": "diet_rel", "sharing": "layer-wise"},
        30_522,
        "109.7",
    ),
    "DIET-ABS": ({"rank": 128, "sharing": "none"}, 30_522, "128.6"),
    "DIET-ABS (share)": ({"rank": 128}, 30_522, "111.3"),
    "multilingual DIET-ABS": ({"rank": 128, "sharing": "none"}, MULTILINGUAL, "197.4"),
}
pytestmark = [pytest.mark.any_backend, pytest.mark.usefixtures("zero_initializers")]


@functools.cache
def parameters(vocabulary_size, intermediate_dim, **arguments):
    """The parameters of 12 layers, by those of one and of two, which are built faster."""
    one, two = (
        DietBertMaskedLM(
            DietBertBackbone(vocabulary_size, n, 12, 768, intermediate_dim, **arguments)
        ).count_params()
        for n in (1, 2)
    )
    return one + 11 * (two - one)


@pytest.mark.parametrize("model", MODELS)
def test_parameters(model):
    arguments, vocabulary_size, millions = MODELS[model]
    assert f"{parameters(vocabulary_size, 3072, **arguments) / 1e6:.1f}" == millions


@pytest.mark.parametrize("position_encoding", sorted(POSITION_ENCODINGS))
def test_parameters_of_positions_are_those_of_the_page(position_encoding):
    page = Path(__file__).parents[2] / "docs" / "encodings" / "README.md"
    (row,) = [
        line for line in page.read_text().splitlines() if f'`"{position_encoding}"`](' in line
    ]
    found, none = (parameters(2, 8, position_encoding=each) for each in (position_encoding, "none"))
    assert f"| {found - none:,} " in row
