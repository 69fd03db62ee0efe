"""Special tokens that a user has added, such as markers of entities, are never masked."""

import keras_hub
import numpy as np
import pytest
import tokenizers

from keras_diet.models import (
    DietBertMaskedLMPreprocessor,
    DietBertSentencePieceTokenizer,
    DietBertTokenizer,
    HuggingFaceTokenizer,
)
from keras_diet.pretraining import masked_lm_dataset

pytestmark = pytest.mark.any_backend

MARKERS = ["[ENT]", "[/ENT]"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "quick", "fox", "red", "dog"]
TEXTS = ["the [ENT] quick [/ENT] fox", "[ENT] dog [/ENT]"]
# Every token is selected, and becomes a random one.
ALL = {"mask_selection_rate": 1.0, "mask_token_rate": 0.0, "random_token_rate": 1.0}


def hugging_face(model):
    """A tokenizer whose markers have ids behind and between the words."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens([*SPECIAL, *MARKERS])
    # An added token that is not special is a word.
    tokenizer.add_tokens(["dog"])
    return HuggingFaceTokenizer(tokenizer)


def word_piece(cls):
    vocabulary = [*SPECIAL, "[ENT]", *WORDS, "[/ENT]"]
    return cls(vocabulary, special_tokens=MARKERS, special_tokens_in_strings=True)


def sentence_piece():
    return DietBertSentencePieceTokenizer.from_texts(
        [" ".join(WORDS)] * 3, 22, control_symbols=",".join(["[MASK]", *MARKERS])
    )


def ids_of(vocabulary):
    return {token: i for i, token in enumerate(vocabulary)}


TOKENIZERS = {
    "WordPiece of Hugging Face": lambda: hugging_face(
        tokenizers.models.WordPiece(ids_of([*SPECIAL, *WORDS[:4]]), unk_token="[UNK]")
    ),
    "words of Hugging Face": lambda: hugging_face(
        tokenizers.models.WordLevel(ids_of([*SPECIAL, "[/ENT]", *WORDS[:4]]), unk_token="[UNK]")
    ),
    "WordPiece": lambda: word_piece(DietBertTokenizer),
    "SentencePiece": sentence_piece,
    "KerasHub": lambda: word_piece(keras_hub.models.BertTokenizer),
}


def rows_of(tokenizer):
    """Sequences with both markers, and the ids of the words in them."""
    markers = [tokenizer.token_to_id(marker) for marker in MARKERS]
    # No text has the control tokens of SentencePiece.
    fox, dog = ([int(i) for i in tokenizer(text)] for text in ("the fox", "dog"))
    rows = [[markers[0], *fox, markers[1]], [*dog, markers[0], *fox, markers[1]]]
    length = max(map(len, rows)) + 2
    sequences = np.full((2, length), tokenizer.pad_token_id)
    for sequence, row in zip(sequences, rows, strict=True):
        sequence[: len(row) + 2] = [tokenizer.cls_token_id, *row, tokenizer.sep_token_id]
    return sequences, [fox, [*dog, *fox]]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_only_words_are_masked_and_drawn(name):
    tokenizer = TOKENIZERS[name]()
    sequences, words = rows_of(tokenizer)
    special = [tokenizer.token_to_id(token) for token in (*SPECIAL[2:], *MARKERS)]
    dataset = masked_lm_dataset(sequences, tokenizer, 2, shuffle=False, repeat=True, **ALL)
    drawn = set()
    for batch in range(60):
        features, labels, weights = dataset[batch]
        found = [row[used == 1].tolist() for row, used in zip(labels, weights, strict=True)]
        assert found == words, "a marker is masked, or a word is not"
        new = np.take_along_axis(features["token_ids"], features["mask_positions"], axis=1)
        drawn |= set(new[weights == 1].tolist())
    assert not drawn & set(special), "a special token is drawn as a random one"


@pytest.mark.parametrize("name", list(TOKENIZERS)[:3])
def test_only_words_of_texts_are_masked(name):
    """The preprocessor of a task, with the names of the markers in texts."""
    tokenizer = TOKENIZERS[name]()
    preprocessor = DietBertMaskedLMPreprocessor(tokenizer, 9, mask_selection_length=5, **ALL)
    _, labels, weights = preprocessor(TEXTS)
    found = [row[used == 1].tolist() for row, used in zip(labels, weights, strict=True)]
    expected = [["the", "quick", "fox"], ["dog"]]
    assert found == [[tokenizer.token_to_id(word) for word in row] for row in expected]
