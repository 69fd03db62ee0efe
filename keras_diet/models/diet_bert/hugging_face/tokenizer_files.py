"""The tokenizer of a folder of Hugging Face, as `transformers` reads it."""

import dataclasses
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import tokenizers
from sentencepiece import SentencePieceProcessor
from tokenizers import models

from keras_diet._extras import import_transformers
from keras_diet.models.diet_bert.hugging_face.checkpoint import optional_json
from keras_diet.types import Config

Folder = str | os.PathLike[str]
FILE = "tokenizer.json"
VOCABULARY = "vocab.txt"
PIECES = "spm.model"
# The types whose own tokenizer reads `vocab.txt` and is of the package `tokenizers`.
_WITH_WORDS = ("bert", "distilbert", "electra", "ernie", "megatron-bert", "mpnet", "nomic_bert")


@dataclasses.dataclass(frozen=True)
class TokenizerFiles:
    """What the files of a folder say about its tokenizer.

    Attributes:
        tokenizer: The tokenizer of the `tokenizers` package.
        names: The special tokens by their roles, such as `"cls"` and `"bos"`.
        split_special_tokens: Whether special tokens in a text are ordinary words.
        number_segments: Whether models get the numbers of the two texts of a pair.
    """

    tokenizer: tokenizers.Tokenizer
    names: dict[str, str]
    split_special_tokens: bool
    number_segments: bool


def read_tokenizer_files(folder: Folder) -> TokenizerFiles:
    """Return what the files of a folder say about its tokenizer, as `transformers` reads them.

    Args:
        folder: A folder with `tokenizer.json`, with the `vocab.txt` of a BERT, or with the
            `spm.model` of a DeBERTa.

    Raises:
        ValueError: If there is none of these files, if `transformers` cannot read them, or if the
            library does not have what they say.
        ImportError: If `transformers` is not installed.
    """
    if not (has_tokenizer(folder) or (Path(folder) / VOCABULARY).is_file()):
        raise ValueError(
            f"`folder` must have a file {FILE}, or {VOCABULARY} for a BERT, or {PIECES} for a "
            f"DeBERTa. Received: folder={os.fspath(folder)!r}. Write one in Python with "
            "transformers: `AutoTokenizer.from_pretrained(folder).save_pretrained(folder)`."
        )
    found, contents = _read(folder)
    if found.truncation_side != "right":
        raise ValueError(
            "`truncation_side` must be 'right', because preprocessors cut the end of a text. "
            f"Received: {found.truncation_side!r} in {os.fspath(folder)!r}"
        )
    _check_settings(folder, contents)
    tokens = found.special_tokens_map.items()
    names = {name.removesuffix("_token"): token for name, token in tokens}
    numbers_segments = "token_type_ids" in found.model_input_names
    return TokenizerFiles(
        found.backend_tokenizer, names, found.split_special_tokens, numbers_segments
    )


def _read(folder: Folder) -> tuple[Any, Config]:
    """Return the tokenizer of `transformers`, and its contents as `tokenizer.json` has them."""
    transformers = import_transformers()
    options: Config = {"local_files_only": True, "trust_remote_code": False}
    try:
        if _has_pieces(folder):
            with tempfile.TemporaryDirectory() as copy:
                unk_id = _copy_with_pieces(folder, copy)
                cls = transformers.DebertaV2Tokenizer
                found = cls.from_pretrained(copy, unk_id=unk_id, **options)
        else:
            found = transformers.AutoTokenizer.from_pretrained(folder, **options)
            # Without a file that it knows, a class makes a tokenizer of no words.
            names = {FILE, *found.vocab_files_names.values()}
            if not any((Path(folder) / name).is_file() for name in names):
                raise ValueError(f"{type(found).__name__} reads none of its files.")
        # Some are not of the package, and others cannot be written.
        return found, json.loads(found.backend_tokenizer.to_str())
    # Each class of tokenizers raises its own errors.
    except Exception as error:
        raise ValueError(
            "`folder` must have a tokenizer of the package `tokenizers`, which `transformers` must "
            f"read without code of the folder. Received: folder={os.fspath(folder)!r}, of which it "
            f"says: {error} Without a tokenizer, pass `preprocessor=None` and token ids to the "
            "models, and `cls_token_id` to `from_bert`."
        ) from error


def _copy_with_pieces(folder, copy):
    """Write a copy of a DeBERTa with `tokenizer.json`, and return the id of unknown pieces.

    The reader of pieces in `transformers` needs another version of protobuf than TensorFlow.
    """
    pieces = SentencePieceProcessor(model_file=os.fspath(Path(folder) / PIECES))
    rows = [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(len(pieces))]
    for path in Path(folder).glob("*.json"):
        shutil.copy(path, copy)
    tokenizers.Tokenizer(models.Unigram(rows)).save(os.path.join(copy, FILE))
    return pieces.unk_id()


# Settings of tokenizer_config.json, and where `tokenizer.json` has them.
_IN_FILE = {
    "do_lower_case": ("normalizer", "lowercase"),
    "strip_accents": ("normalizer", "strip_accents"),
    "tokenize_chinese_chars": ("normalizer", "handle_chinese_chars"),
    "add_prefix_space": ("pre_tokenizer", "add_prefix_space"),
}


def _check_settings(folder: Folder, found: Config) -> None:
    """Raise a `ValueError` if `transformers` 5 takes another setting than `tokenizer.json` says."""
    config, file = optional_json(folder, "tokenizer_config.json"), optional_json(folder, FILE)
    said, taken = (each.get("model", {}).get("type") for each in (file, found))
    if said not in (None, taken):
        raise ValueError(
            f"The `tokenizer_class` of {os.fspath(folder)!r} must fit {FILE}. Received: a class "
            f"with a model of the type {taken!r}, and the type {said!r} in {FILE}"
        )
    for name, (part, key) in _IN_FILE.items():
        said, taken = (each.get(part) or {} for each in (file, found))
        is_in_both = key in said and key in taken
        if name not in config and is_in_both and said[key] != taken[key]:
            raise ValueError(
                f"`{name}` must be in tokenizer_config.json of {os.fspath(folder)!r}, because "
                f"`transformers` 5 takes {taken[key]} for it, and earlier versions {key!r} of "
                f"{FILE}. Received: no {name!r}, and {key}={said[key]} in {FILE}. Write the right "
                "one there."
            )


def has_tokenizer(folder: Folder) -> bool:
    """Return whether a folder has a file from which `HuggingFaceTokenizer` is made."""
    if (Path(folder) / FILE).is_file():
        return True
    has_words = (Path(folder) / VOCABULARY).is_file()
    return _has_pieces(folder) or (has_words and _type_of(folder) in _WITH_WORDS)


def _has_pieces(folder):
    """Return whether a folder holds a DeBERTa with pieces, and no `tokenizer.json`."""
    has_them = (Path(folder) / PIECES).is_file() and not (Path(folder) / FILE).is_file()
    return has_them and _type_of(folder) == "deberta-v2"


def _type_of(folder):
    return optional_json(folder, "config.json").get("model_type")
