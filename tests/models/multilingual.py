"""Texts of several languages, and SentencePiece models for DietBert that are trained on them."""

import functools

from keras_diet.models import DietBertSentencePieceTokenizer
from tests.models.diet_transformer.pairs import SHUFFLED
from tests.models.tiny import TEXTS as ENGLISH

TEXTS = {
    "en": ENGLISH,
    "de": ["der schnelle Fuchs schläft", "ein langsamer Hund", "der Hund schläft im Baum"],
    "zh": ["狐狸在树上睡觉", "狗睡觉"],
}
SIZES = {"default": 61, "shuffled": 67}


@functools.cache
def proto(kind="default"):
    """A SentencePiece model of 61 tokens, or one of 67 tokens with other special tokens."""
    options = {} if kind == "default" else SHUFFLED
    return DietBertSentencePieceTokenizer.from_texts(
        TEXTS, SIZES[kind], character_coverage=1.0, **options
    ).proto


def multilingual_tokenizer(kind="shuffled"):
    return DietBertSentencePieceTokenizer(proto(kind))
