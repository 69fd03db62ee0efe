import keras_hub
import pytest

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def tokenizer():
    """29 tokens: the special ones, the words aa...ww and the full stop."""
    words = [2 * chr(code) for code in range(ord("a"), ord("x"))]
    return keras_hub.models.BertTokenizer([*SPECIAL_TOKENS, *words, "."], lowercase=True)


@pytest.fixture
def shifted_tokenizer():
    """A tokenizer whose special tokens have unusual ids: 0 is a word and `[PAD]` is 7."""
    vocabulary = ["aa", "bb", "[SEP]", "cc", "[MASK]", "dd", "[CLS]", "[PAD]", "[UNK]", "ee"]
    return keras_hub.models.BertTokenizer(vocabulary, lowercase=True)
