"""Table 6 of the paper: the parameters of its masked language models, to the printed digit."""

import functools

import pytest

from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS
from keras_diet.models import DietBertBackbone, DietBertMaskedLM
from tests.test_documentation import ROOT, code_of, run

ENGLISH, MULTILINGUAL = 30_522, 120_000
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


def test_parameters():
    """A word has an embedding and an output bias."""
    code = code_of(ROOT / "docs/reproduction/tables.md").partition("for table in")[0]
    for row, arguments in run(code)["TABLE_6"].items():
        english = parameters(ENGLISH, 3072, **arguments)
        multilingual = english + (MULTILINGUAL - ENGLISH) * 769
        assert row.endswith(f", {english / 1e6:.1f}, {multilingual / 1e6:.1f}")


@pytest.mark.parametrize("position_encoding", sorted(POSITION_ENCODINGS))
def test_parameters_of_positions_are_those_of_the_page(position_encoding):
    page = ROOT / "docs/encodings/README.md"
    (row,) = [
        line for line in page.read_text().splitlines() if f'`"{position_encoding}"`](' in line
    ]
    found, none = (parameters(2, 8, position_encoding=each) for each in (position_encoding, "none"))
    assert f"| {found - none:,} " in row
