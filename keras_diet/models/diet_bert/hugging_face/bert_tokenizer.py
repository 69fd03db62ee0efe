"""The tokenizer of a BERT, from KerasHub or from a folder of Hugging Face, as our arguments."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_hub.models import BertTokenizer

from keras_diet import validation
from keras_diet.models.diet_bert.hugging_face.checkpoint import is_hugging_face_folder, read_json
from keras_diet.types import Config

Folder = str | os.PathLike[str]
_OF_BERT = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
_OF_MPNET = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>"}


def special_tokens(vocabulary: Sequence[str], names: Mapping[str, str | None]) -> dict[str, str]:
    """Return special tokens by their role: those that have a name, or those of the vocabulary.

    MPNet's vocabulary contains BERT's special tokens too, but MPNet does not use them.
    """
    is_mpnet = set(_OF_MPNET.values()) <= set(vocabulary)
    defaults = _OF_MPNET if is_mpnet else _OF_BERT
    return {role: names.get(role) or token for role, token in defaults.items()}


def read_tokenizer(bert: Any) -> Config:
    """Return the arguments with which `DietBertTokenizer` is the tokenizer of a BERT.

    Args:
        bert: As in `DietBertTokenizer.from_bert`.

    Raises:
        ValueError: If `bert` is something else, or if the tokenizer is not BERT's.
    """
    if is_hugging_face_folder(bert):
        return _read_folder(bert)
    if isinstance(bert, (str, os.PathLike)):
        bert = BertTokenizer.from_preset(os.fspath(bert))
    if not isinstance(bert, BertTokenizer):
        raise ValueError(
            "`bert` must be a `keras_hub.models.BertTokenizer`, the address of a preset of one, or "
            "a folder into which `save_pretrained` of Hugging Face wrote a BERT and its tokenizer. "
            f"Received: bert={bert!r}"
        )
    config = bert.get_config()
    names = [
        *("lowercase", "strip_accents", "split", "suffix_indicator", "oov_token"),
        *("special_tokens_in_strings", "sequence_length"),
    ]
    return {
        "vocabulary": bert.get_vocabulary(),
        "split_on_cjk": bert.split_on_cjk,
        **{name: config[name] for name in names},
        **{f"{role}_token": getattr(bert, f"{role}_token") for role in _OF_BERT},
    }


def read_vocabulary(folder: Folder) -> list[str]:
    """Return the tokens of a folder of Hugging Face in the order of their ids."""
    path = Path(folder) / "vocab.txt"
    if path.is_file():
        return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    model = read_json(folder, "tokenizer.json")["model"]
    kind = model.get("type", "WordPiece")
    validation.choice("type of the model in tokenizer.json", kind, ("WordPiece",))
    tokens = {token_id: token for token, token_id in model["vocab"].items()}
    return [tokens[token_id] for token_id in range(len(tokens))]


def names_of_special_tokens(folder: Folder) -> dict[str, str]:
    """Return the special tokens that a folder of Hugging Face names, by their roles."""
    names = {}
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        config = read_json(folder, file) if (Path(folder) / file).is_file() else {}
        for role in (*_OF_BERT, "unk", "bos", "eos"):
            if token := config.get(f"{role}_token"):
                names[role] = token["content"] if isinstance(token, Mapping) else token
        if "added_tokens_decoder" in config:
            # Then transformers does not read the other file, either.
            break
    return names


def read_special_tokens(folder: Folder, vocabulary: list[str]) -> dict[str, str]:
    """Return the special tokens of a folder of Hugging Face, as arguments of the tokenizer."""
    names = {"unk": "[UNK]", **names_of_special_tokens(folder)}
    tokens = {"oov": names["unk"], **special_tokens(vocabulary, names)}
    return {f"{role}_token": token for role, token in tokens.items()}


def _read_folder(folder: Folder) -> Config:
    config, normalizer = (
        read_json(folder, name) if (Path(folder) / name).is_file() else {}
        for name in ("tokenizer_config.json", "tokenizer.json")
    )
    normalizer = normalizer.get("normalizer") or {}
    kind = normalizer.get("type", "BertNormalizer")
    validation.choice("type of the normalizer in tokenizer.json", kind, ("BertNormalizer",))

    def option(name: str, name_in_normalizer: str, default: bool) -> bool:
        values = (config.get(name), normalizer.get(name_in_normalizer), default)
        return next(value for value in values if value is not None)

    # By default, Hugging Face lowercases, and strips accents whenever it lowercases.
    lowercase = option("do_lower_case", "lowercase", True)
    vocabulary = read_vocabulary(folder)
    return {
        "vocabulary": vocabulary,
        **read_special_tokens(folder, vocabulary),
        "lowercase": lowercase,
        "strip_accents": option("strip_accents", "strip_accents", lowercase),
        "split_on_cjk": option("tokenize_chinese_chars", "handle_chinese_chars", True),
    }
