"""The tokenizer of a folder of Hugging Face, as `transformers` reads it."""

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from sentencepiece import SentencePieceProcessor
from tokenizers import decoders, models, normalizers, pre_tokenizers

from keras_diet import validation
from keras_diet.models.diet_bert.hugging_face.checkpoint import optional_json
from keras_diet.types import Config

Folder = str | os.PathLike[str]
FILE = "tokenizer.json"
VOCABULARY = "vocab.txt"
PIECES = "spm.model"


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
        ValueError: If two files disagree, or if the library does not have what they say.
    """
    found = _read(folder)
    fast = getattr(found, "backend_tokenizer", None)
    if fast is None:
        raise ValueError(
            "`tokenizer_class` must be one that `transformers` makes with the package "
            f"`tokenizers`. Received: {type(found).__name__!r} in {os.fspath(folder)!r}. Pass "
            "token ids to the models."
        )
    if found.truncation_side != "right":
        raise ValueError(
            "`truncation_side` must be 'right', because preprocessors cut the end of a text. "
            f"Received: {found.truncation_side!r} in {os.fspath(folder)!r}"
        )
    _check_settings(folder, json.loads(fast.to_str()))
    names = {
        name.removesuffix("_token"): token
        for name, token in found.special_tokens_map.items()
        if isinstance(token, str)
    }
    numbers_segments = "token_type_ids" in found.model_input_names
    return TokenizerFiles(fast, names, found.split_special_tokens, numbers_segments)


def _read(folder: Folder) -> Any:
    """Return the tokenizer of `transformers`."""
    # It takes seconds, and only this function needs it.
    import transformers

    with tempfile.TemporaryDirectory() as copy:
        if not (Path(folder) / FILE).is_file() and (Path(folder) / PIECES).is_file():
            # Its reader of pieces needs another version of protobuf than TensorFlow.
            pieces = SentencePieceProcessor(model_file=os.fspath(Path(folder) / PIECES))
            rows = [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(len(pieces))]
            for path in Path(folder).glob("*.json"):
                shutil.copy(path, copy)
            tokenizers.Tokenizer(models.Unigram(rows, pieces.unk_id())).save(f"{copy}/{FILE}")
            folder = copy
        return transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )


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
    is_deberta = optional_json(folder, "config.json").get("model_type") == "deberta-v2"
    return any((Path(folder) / name).is_file() for name in (FILE, *[PIECES] * is_deberta))


def word_pieces(
    vocabulary: Mapping[str, int],
    unk_token: str,
    lowercase: bool,
    strip_accents: bool | None,
    split_on_cjk: bool,
    prefix: str = "##",
) -> tokenizers.Tokenizer:
    """Return BERT's tokenizer, without special tokens."""
    model = models.WordPiece(
        dict(vocabulary), unk_token=unk_token, continuing_subword_prefix=prefix
    )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=split_on_cjk, strip_accents=strip_accents, lowercase=lowercase
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix)
    return tokenizer


def read_words(folder: Folder) -> Config:
    """Return the arguments with which `DietBertTokenizer` is the tokenizer of a folder.

    Raises:
        ValueError: If the tokenizer is not BERT's.
    """
    files = read_tokenizer_files(folder)
    contents = json.loads(files.tokenizer.to_str())
    for part, kind in (("model", "WordPiece"), ("normalizer", "BertNormalizer")):
        found = (contents[part] or {}).get("type")
        validation.choice(f"type of the {part} in {FILE}", found, (kind,))
    tokens = {i: token for token, i in files.tokenizer.get_vocab().items()}
    lowercase, strip_accents, split_on_cjk = (
        contents["normalizer"][name]
        for name in ("lowercase", "strip_accents", "handle_chinese_chars")
    )
    return {
        "vocabulary": [tokens[i] for i in range(len(tokens))],
        "oov_token": contents["model"]["unk_token"],
        "lowercase": lowercase,
        # BERT strips accents whenever it lowercases.
        "strip_accents": lowercase if strip_accents is None else strip_accents,
        "split_on_cjk": split_on_cjk,
        **{f"{role}_token": files.names.get(role) for role in ("cls", "sep", "pad", "mask")},
    }
