"""Arguments of the functions for pretraining that would be silently wrong: a row for each check."""

import numpy as np
import pytest

from keras_diet import pretraining
from keras_diet.models import DietBertSentencePieceTokenizer, DietBertTokenizer
from tests.models.multilingual import proto
from tests.models.tiny import VOCABULARY

pytestmark = pytest.mark.any_backend

TOKENIZER = DietBertTokenizer(VOCABULARY)
IDS = np.array([[2, 5, 6, 7, 8, 9, 3, 0], [2, 9, 8, 7, 6, 5, 10, 3]])
# A text behind another one, with and without `[CLS]`.
DOCUMENTS = np.array([[2, 5, 6, 3, 2, 9, 3, 0], [2, 9, 8, 7, 6, 5, 10, 3]])
PAIRS = np.where(DOCUMENTS == 2, [2, 0, 0, 0, 7, 0, 0, 0], DOCUMENTS)


def mask(token_ids=IDS, **arguments):
    defaults = {"vocabulary_size": 31, "mask_token_id": 4, "unselectable_token_ids": [0, 1, 2]}
    generator = np.random.default_rng(0)
    return lambda: pretraining.mask_tokens(token_ids, generator, **{**defaults, **arguments})


def dataset(token_ids=IDS, **arguments):
    arguments = {"tokenizer": TOKENIZER, "batch_size": 2, **arguments}
    return lambda: pretraining.masked_lm_dataset(token_ids, **arguments)


def pack(documents=(("the fox",),), tokenizer=TOKENIZER, length=8):
    return lambda: list(pretraining.pack_sentences(documents, tokenizer, length))


def vocabulary(texts=("the quick fox", "the quick dog"), size=60, **arguments):
    return lambda: pretraining.train_wordpiece_vocabulary(
        texts, size, show_progress=False, **arguments
    )


def sample(texts, **arguments):
    return lambda: pretraining.sample_languages(texts, **arguments)


REFUSED = {
    "no rate": (mask(mask_selection_rate=0), "`mask_selection_rate` must be above 0"),
    "rate": (mask(mask_selection_rate=15), "`mask_selection_rate` must be a number in [0, 1]"),
    "rate of masks": (mask(mask_token_rate=-0.1), "`mask_token_rate` must be a number in"),
    "rate of tokens": (mask(random_token_rate=1.1), "`random_token_rate` must be a number in"),
    "sum of rates": (mask(mask_token_rate=0.95), "at most 1. Received: 0.15, 0.95 and 0.1"),
    "no selection": (mask(mask_selection_length=0), "`mask_selection_length` must be a positive"),
    "ids float": (
        mask(IDS + 0.5),
        "`token_ids` must be integers in [0, vocabulary_size) = [0, 31",
    ),
    "ids large": (mask(IDS + 21), "Received: 21 to 31"),
    "ids negative": (mask(IDS - 1), "Received: -1 to 9"),
    "mask id": (mask(mask_token_id=31), "The ids of special tokens must be integers in"),
    "segments": (lambda: pretraining.number_segments(IDS, 3, num_segments=0), "`num_segments` mus"),
    "repeat 3": (dataset(repeat=3), "`repeat` must be one of False, True"),
    "documents without [CLS]": (
        dataset({"en": DOCUMENTS, "sw": PAIRS}, repeat=True, document_masks=True),
        "Received: the token 7 behind `[SEP]`. Pack the sequences with `document_masks=True`",
    ),
    "segments and documents": (
        dataset(DOCUMENTS, document_masks=True, num_segments=2),
        "`document_masks=True` needs `num_segments=1`",
    ),
    "no batch": (dataset(batch_size=3), "No batch is left. Received: batch_size=3 with 2 sequen"),
    "no batch again": (dataset(batch_size=3, repeat=True), "No batch is left"),
    "languages once": (dataset({"en": IDS}), "Several languages need `repeat=True`"),
    "exponent": (
        dataset({"en": IDS}, repeat=True, sampling_exponent=-1),
        "`sampling_exponent` must be a number in",
    ),
    "no texts": (sample({"en": ["a"], "sw": []}), "`sizes['sw']` must be a positive integer"),
    "iterator": (sample({"en": iter(["a"])}), "several times. Received: list_iterator"),
    "string": (sample({"en": "a"}), "several times. Received: str"),
    "no samples": (sample({"en": ["a"]}, num_samples=0), "`num_samples` must be a positive"),
    "documents of strings": (pack(["the fox"]), "lists of lines. Received: 'the fox'"),
    "documents of dictionaries": (pack([{"text": "the fox"}]), "Received: {'text': 'the fox'}"),
    "short sequences": (pack(length=2), "`sequence_length` must be at least 3"),
    "tokenizer that pads": (
        pack(tokenizer=DietBertTokenizer(VOCABULARY, sequence_length=8)),
        "Received: tokenizer.sequence_length=8",
    ),
    "tokenizer that adds": (
        pack(tokenizer=DietBertSentencePieceTokenizer(proto(), add_eos=True)),
        "Received: tokenizer.add_eos=True",
    ),
    "nothing to write": (
        lambda: pretraining.write_packed([], "tokens.npy", 8, show_progress=False),
        "at least one sequence",
    ),
    "one text": (vocabulary("the fox"), "not one string. Received: 'the fox'"),
    "no words": (vocabulary([" \n", "\u200b"]), "Empty training text"),
    "no alphabet": (vocabulary(limit_alphabet=0), "`limit_alphabet` must be a positive"),
}


@pytest.mark.parametrize("call, message", REFUSED.values(), ids=list(REFUSED))
def test_refusals(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as error:  # noqa: PT011
        call()
    assert message in str(error.value)
    assert list(tmp_path.iterdir()) == []
