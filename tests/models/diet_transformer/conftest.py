"""Fixtures of the tests of the DietTransformer models."""

import pytest

from keras_diet.models import DietTransformerTokenizer
from tests.models.diet_transformer.pairs import SHUFFLED, SOURCES, TARGETS


@pytest.fixture(scope="session")
def proto():
    """A SentencePiece model of 61 tokens with default special tokens."""
    return DietTransformerTokenizer.from_texts(SOURCES + TARGETS, vocabulary_size=61).proto


@pytest.fixture(scope="session")
def shuffled_proto():
    """A SentencePiece model of 59 tokens whose special tokens have other names and ids."""
    return DietTransformerTokenizer.from_texts(SOURCES + TARGETS, 59, **SHUFFLED).proto


@pytest.fixture
def tokenizer(shuffled_proto):
    return DietTransformerTokenizer(shuffled_proto)
