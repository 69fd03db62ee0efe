"""Fixtures of the tests of the DietTransformer models."""

import pytest

from keras_diet.models import DietTransformerTokenizer
from tests.models.diet_transformer import tiny
from tests.models.diet_transformer.pairs import SHUFFLED, SOURCES, TARGETS

proto = pytest.fixture(tiny.proto, scope="session")


@pytest.fixture(scope="session")
def shuffled_proto():
    """A SentencePiece model of 59 tokens whose special tokens have other names and ids."""
    return DietTransformerTokenizer.from_texts(SOURCES + TARGETS, 59, **SHUFFLED).proto


@pytest.fixture
def tokenizer(shuffled_proto):
    return DietTransformerTokenizer(shuffled_proto)
