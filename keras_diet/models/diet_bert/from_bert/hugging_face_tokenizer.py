"""A checkpoint folder of Hugging Face's BERT: its vocabulary, and how text is normalized."""

import warnings
from pathlib import Path

from keras_diet import validation
from keras_diet.models.diet_bert.from_bert.hugging_face import read_arguments
from keras_diet.models.diet_bert.from_bert.json_files import read_optional_json, read_text

_VOCABULARY_FILES = ("vocab.txt", "tokenizer.json")
_NORMALIZERS = ("BertNormalizer",)


def read_tokenizer(folder):
    """Return the arguments of `DietBertTokenizer`: the vocabulary, and how text is normalized."""
    vocabulary, vocabulary_size = _read_vocabulary(folder)
    if len(vocabulary) < vocabulary_size:
        warnings.warn(
            f"The vocabulary in `{folder}` has {len(vocabulary)} tokens, where the weights are for "
            f"{vocabulary_size}: it is incomplete, unless the weights were padded.",
            stacklevel=4,
        )
    normalizer = read_optional_json(folder, "tokenizer.json").get("normalizer") or {}
    validation.choice(
        "normalizer of tokenizer.json", normalizer.get("type", "BertNormalizer"), _NORMALIZERS
    )
    config = read_optional_json(folder, "tokenizer_config.json")

    def option(name, name_in_normalizer, default):
        values = (config.get(name), normalizer.get(name_in_normalizer), default)
        return next(value for value in values if value is not None)

    # Where no file says, Hugging Face lowercases, and strips accents with that.
    lowercase = option("do_lower_case", "lowercase", True)
    return {
        "vocabulary": vocabulary,
        "lowercase": lowercase,
        "strip_accents": option("strip_accents", "strip_accents", lowercase),
        "split_on_cjk": option("tokenize_chinese_chars", "handle_chinese_chars", True),
    }


def read_cls_token_id(folder):
    """Return the id of `[CLS]`, `None` for a folder without a vocabulary."""
    has_vocabulary = any((Path(folder) / name).is_file() for name in _VOCABULARY_FILES)
    vocabulary = _read_vocabulary(folder)[0] if has_vocabulary else []
    return vocabulary.index("[CLS]") if "[CLS]" in vocabulary else None


def check_vocabulary_fits(num_tokens, vocabulary_size, source):
    """Raise a `ValueError` if there are no tokens, or more than the weights are for."""
    if not 0 < num_tokens <= vocabulary_size:
        raise ValueError(
            f"The vocabulary does not fit the weights. Received: {num_tokens} tokens in "
            f"`{source}`, where the weights have vocab_size={vocabulary_size}"
        )


def _read_vocabulary(folder):
    """Return the tokens in the order of their ids, and for how many of them the weights are."""
    vocabulary, file = _vocabulary(folder)
    vocabulary_size = read_arguments(folder)["vocabulary_size"]
    check_vocabulary_fits(len(vocabulary), vocabulary_size, Path(folder) / file)
    return vocabulary, vocabulary_size


def _vocabulary(folder):
    """Return the tokens in the order of their ids, and the file that has them."""
    path = Path(folder) / "vocab.txt"
    if path.is_file():
        text = read_text(path).removesuffix("\n")
        return text.split("\n") if text else [], path.name
    model = read_optional_json(folder, "tokenizer.json").get("model") or {}
    if model.get("type", "WordPiece") != "WordPiece":
        raise ValueError(
            "The tokenizer of a BERT checkpoint must be a WordPiece tokenizer. Received: "
            f"{model['type']} in tokenizer.json of `{folder}`"
        )
    if "vocab" not in model:
        raise ValueError(
            f"The checkpoint folder must have a vocabulary, in one of {_VOCABULARY_FILES}. "
            f"Received: `{folder}`"
        )
    ids = model["vocab"]
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError(f"The ids in tokenizer.json of `{folder}` have gaps.")
    return sorted(ids, key=ids.get), "tokenizer.json"
