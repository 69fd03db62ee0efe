"""Texts of several languages, and SentencePiece models for DietBert that are trained on them."""

import functools

from keras_diet.models import DietBertSentencePieceTokenizer
from tests.models.tiny import TEXTS as ENGLISH

TEXTS = {
    "en": ENGLISH,
    "de": ["der schnelle Fuchs schläft", "ein langsamer Hund", "der Hund schläft im Baum"],
    "zh": ["狐狸在树上睡觉", "狗睡觉"],
}
# No special token has the id or the name that it has by default. Padding is not 0.
SHUFFLED = {
    **{"pad_id": 6, "bos_id": 4, "eos_id": 0, "unk_id": 2},
    **{"pad_piece": "[P]", "bos_piece": "[GO]", "eos_piece": "[END]", "unk_piece": "[?]"},
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
