"""The tokenizer of a folder of Hugging Face, from `tokenizer.json` and the files beside it.

`transformers` 5 takes `tokenizer.json` as it is only for some classes of tokenizers. The others,
such as `BertTokenizer`, take its vocabulary, and make the rest from `tokenizer_config.json`.
"""

import base64
import dataclasses
import functools
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from sentencepiece import SentencePieceProcessor
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

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


# === Classes that make their tokenizer themselves ===


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


def _of_words(file: Config, names: dict[str, str], settings: Config) -> tokenizers.Tokenizer:
    return word_pieces(file["model"]["vocab"], names["unk"], *settings.values())


def _of_bytes(file: Config, names: dict[str, str], settings: Config) -> tokenizers.Tokenizer:
    merges = [
        each.split(" ") if isinstance(each, str) else each for each in file["model"]["merges"]
    ]
    model = models.BPE(file["model"]["vocab"], list(map(tuple, merges)))
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(settings["add_prefix_space"])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _unigram(
    file: Config, names: dict[str, str], unk_id: int | None = None
) -> tuple[tokenizers.Tokenizer, list[Any]]:
    """Return SentencePiece's vocabulary without rules, and its table of characters if it has one.

    The class has the other steps of the normalization.
    """
    vocabulary = list(map(tuple, file["model"]["vocab"]))
    if unk_id is None:
        unk_id = next((i for i, row in enumerate(vocabulary) if row[0] == names["unk"]), 0)
    normalizer = file.get("normalizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    tables = [each["precompiled_charsmap"] for each in steps if each.get("type") == "Precompiled"]
    found = [normalizers.Precompiled(base64.b64decode(table)) for table in tables]
    return tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id)), found


def _mark_spaces(tokenizer: tokenizers.Tokenizer, scheme: str, *steps: Any) -> tokenizers.Tokenizer:
    """Split texts into words after other steps, and mark the space before a word."""
    metaspace = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, metaspace])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return tokenizer


def _of_pieces(
    file: Config, names: dict[str, str], settings: Config, unk_id: int | None = None
) -> tokenizers.Tokenizer:
    tokenizer, table = _unigram(file, names, unk_id)
    if table:
        tokenizer.normalizer = table[0]
    scheme = "always" if settings.get("add_prefix_space", True) else "never"
    return _mark_spaces(tokenizer, scheme, pre_tokenizers.WhitespaceSplit())


def _of_albert(file: Config, names: dict[str, str], settings: Config) -> tokenizers.Tokenizer:
    tokenizer, table = _unigram(file, names, 1)
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not settings["keep_accents"]:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    steps += [normalizers.Lowercase()] * settings["do_lower_case"]
    tokenizer.normalizer = normalizers.Sequence([*steps, *table])
    scheme = "always" if settings["add_prefix_space"] else "never"
    return _mark_spaces(tokenizer, scheme, pre_tokenizers.WhitespaceSplit())


def _of_deberta(file: Config, names: dict[str, str], settings: Config) -> tokenizers.Tokenizer:
    # `transformers` does not use the table of characters.
    tokenizer, _ = _unigram(file, names)
    steps: list[Any] = [normalizers.Lowercase()] * settings["do_lower_case"]
    steps += [
        normalizers.Replace(tokenizers.Regex(r"\s{2,}|[\n\r\t]"), " "),
        normalizers.NFC(),
        normalizers.Strip(left=False, right=True),
    ]
    tokenizer.normalizer = normalizers.Sequence(steps)
    scheme = "always" if settings["add_prefix_space"] else "first"
    punctuation = [pre_tokenizers.Punctuation("isolated")] * settings["split_by_punct"]
    return _mark_spaces(tokenizer, scheme, *punctuation)


@dataclasses.dataclass(frozen=True)
class _TokenizerClass:
    """A class of `transformers` that takes only the vocabulary from `tokenizer.json`.

    Attributes:
        model: Type of the model in `tokenizer.json`.
        make: `make(file, names, settings)` returns the tokenizer without special tokens.
        names: Its special tokens by their roles.
        single: The template of one text.
        pair: The template of two texts.
        settings: What `tokenizer_config.json` may set, with the defaults.
        extra: Other special tokens, from the configuration, if the files name none.
        flags: Flags of special tokens that the files name without flags.
        appended: Roles of special tokens that are added if the vocabulary lacks them.
        number_segments: Whether models get the numbers of the two texts of a pair.
    """

    model: str
    make: Callable[[Config, dict[str, str], Config], tokenizers.Tokenizer]
    names: dict[str, str]
    single: str = "{cls} $A {sep}"
    pair: str = "{cls} $A {sep} {sep} $B {sep}"
    settings: Config = dataclasses.field(default_factory=dict)
    extra: Callable[[Config], list[str]] = lambda config: []
    flags: Mapping[str, Config] = dataclasses.field(default_factory=dict)
    appended: tuple[str, ...] = ()
    number_segments: bool = False


_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
NAMES_OF_BERT = {role: f"[{role.upper()}]" for role in ("unk", "sep", "pad", "cls", "mask")}
NAMES_OF_ROBERTA = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>"}
NAMES_OF_ROBERTA |= {"cls": "<s>", "mask": "<mask>"}
_BERT = _TokenizerClass(
    "WordPiece",
    _of_words,
    NAMES_OF_BERT,
    pair="{cls} $A {sep} $B:1 {sep}:1",
    settings={"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True},
    number_segments=True,
)
_DISTILBERT = dataclasses.replace(_BERT, number_segments=False)
_MPNET = dataclasses.replace(
    _BERT,
    names={**NAMES_OF_ROBERTA, "unk": "[UNK]"},
    pair=_TokenizerClass.pair,
    flags={"mask": {"lstrip": True}},
)
_ROBERTA = _TokenizerClass("BPE", _of_bytes, NAMES_OF_ROBERTA, settings={"add_prefix_space": False})
_XLM_ROBERTA = _TokenizerClass(
    "Unigram",
    functools.partial(_of_pieces, unk_id=3),
    NAMES_OF_ROBERTA,
    single="{bos} $A {eos}",
    pair="{bos} $A {eos} {eos} $B {eos}",
    settings={"add_prefix_space": True},
)
_CAMEMBERT = dataclasses.replace(
    _XLM_ROBERTA,
    make=_of_pieces,
    extra=lambda config: ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"],
    flags={"mask": {"lstrip": True}},
)
_T5 = _TokenizerClass(
    "Unigram",
    functools.partial(_of_pieces, unk_id=2),
    {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
    single="$A {eos}",
    pair="$A {eos} $B {eos}",
    extra=lambda config: [f"<extra_id_{i}>" for i in range(config.get("extra_ids", 100))],
)
_PIECES_OF_BERT = {"bos": "[CLS]", "eos": "[SEP]", **_BERT.names}
_DEBERTA = _TokenizerClass(
    "Unigram",
    _of_deberta,
    _PIECES_OF_BERT,
    pair=_BERT.pair,
    settings={"do_lower_case": False, "split_by_punct": False, "add_prefix_space": True},
    appended=("mask",),
    number_segments=True,
)
_ALBERT = _TokenizerClass(
    "Unigram",
    _of_albert,
    {**_PIECES_OF_BERT, "unk": "<unk>", "pad": "<pad>"},
    pair=_BERT.pair,
    settings={"do_lower_case": True, "keep_accents": False, "add_prefix_space": True},
)
_AS_IT_IS = _TokenizerClass(
    "", lambda file, *_: tokenizers.Tokenizer.from_str(json.dumps(file)), {}
)
_CLASSES = {
    **{"BertTokenizer": _BERT, "ElectraTokenizer": _BERT, "DistilBertTokenizer": _DISTILBERT},
    **dict.fromkeys(("RobertaTokenizer", "BartTokenizer"), _ROBERTA),
    **{"MPNetTokenizer": _MPNET, "XLMRobertaTokenizer": _XLM_ROBERTA},
    **{"CamembertTokenizer": _CAMEMBERT, "T5Tokenizer": _T5},
    **{"DebertaV2Tokenizer": _DEBERTA, "AlbertTokenizer": _ALBERT},
    **dict.fromkeys(("TokenizersBackend", "PreTrainedTokenizer"), _AS_IT_IS),
}
# The classes of models whose files name none.
_OF_TYPES = {
    **dict.fromkeys(("bert", "distilbert", "electra", "ernie", "nomic_bert"), "BertTokenizer"),
    "megatron-bert": "BertTokenizer",
    **dict.fromkeys(("roberta", "data2vec-text", "roberta-prelayernorm"), "RobertaTokenizer"),
    **dict.fromkeys(("xlm-roberta", "jina_embeddings_v3", "gte"), "XLMRobertaTokenizer"),
    **{"xlm-roberta-xl": "XLMRobertaTokenizer", "mt5": "T5Tokenizer"},
    **{"deberta-v2": "DebertaV2Tokenizer", "albert": "AlbertTokenizer"},
    **{"rembert": "RemBertTokenizer", "esm": "EsmTokenizer"},
    **{"mpnet": "MPNetTokenizer", "camembert": "CamembertTokenizer", "t5": "T5Tokenizer"},
    "roformer": "RoFormerTokenizer",
    "bert-generation": "BertGenerationTokenizer",
}


def _class_of(folder: Folder, config: Config) -> _TokenizerClass:
    """Return the class with which `transformers` reads a folder."""
    model = optional_json(folder, "config.json")
    model_type = model.get("model_type", "")
    default = _OF_TYPES.get(model_type, "TokenizersBackend")
    name = config.get("tokenizer_class") or model.get("tokenizer_class") or default
    # `transformers` does not use the class in the files of ModernBERT.
    name = "TokenizersBackend" if model_type == "modernbert" else name.removesuffix("Fast")
    if name not in _CLASSES:
        raise ValueError(
            f"`tokenizer_class` must be one of {', '.join(_CLASSES)}. Received: {name!r} in "
            f"{os.fspath(folder)!r}, where model_type={model_type!r}. If {FILE} alone says "
            "everything, pass its path to `HuggingFaceTokenizer`, or write "
            '`"tokenizer_class": "TokenizersBackend"` into tokenizer_config.json.'
        )
    return _CLASSES[name]


# === Files ===


def read_tokenizer_files(folder: Folder) -> TokenizerFiles:
    """Return what the files of a folder say about its tokenizer, as `transformers` reads them.

    Args:
        folder: A folder with `tokenizer.json`, with the `vocab.txt` of a BERT, or with the
            `spm.model` of a DeBERTa.

    Raises:
        ValueError: If two files disagree, or if the library does not have what they say.
    """
    config, file = optional_json(folder, "tokenizer_config.json"), optional_json(folder, FILE)
    of_class = _class_of(folder, config)
    if not file and of_class is _DEBERTA:
        model = SentencePieceProcessor(model_file=os.fspath(Path(folder) / PIECES))
        rows = [(model.id_to_piece(i), model.get_score(i)) for i in range(len(model))]
        file = {"model": {"vocab": rows}}
    elif not file:
        lines = (Path(folder) / VOCABULARY).read_text(encoding="utf-8").removesuffix("\n")
        vocabulary = {token: i for i, token in enumerate(lines.split("\n"))}
        file = {"model": {"vocab": vocabulary}}
        of_class = _BERT if of_class is _AS_IT_IS else of_class
    if "added_tokens_decoder" not in config:
        # Otherwise, `transformers` does not read this file.
        config = {**config, **optional_json(folder, "special_tokens_map.json")}
    side = (file.get("truncation") or {}).get("direction", "right").lower()
    if config.get("truncation_side", side) != "right":
        raise ValueError(
            "`truncation_side` must be 'right', because preprocessors cut the end of a text. "
            f"Received: 'left' in {os.fspath(folder)!r}"
        )
    if of_class is _AS_IT_IS and file.get("padding"):
        config = {"pad_token": file["padding"]["pad_token"], **config}
    given, extra = _special_tokens(config, of_class)
    added = _added_tokens(folder, config, file, [*given.values(), *extra])
    names = {**of_class.names, **{role: token.content for role, token in given.items()}}
    tokenizer = of_class.make(file, names, _settings(folder, of_class, config, file))
    # `transformers` appends all tokens of a class that the vocabulary lacks. Few models have them.
    known = tokenizer.get_vocab().keys() | {token.content for token in added}
    kept = {*given, *of_class.appended}
    names = {role: name for role, name in names.items() if role in kept or name in known}
    special = {role: _token(name, **of_class.flags.get(role, {})) for role, name in names.items()}
    special |= given
    if not extra:
        extra = [_token(name) for name in of_class.extra(config) if name in known]
    order = sorted(special, key=lambda role: (*_ROLES, role).index(role))
    _add_tokens(tokenizer, added, [*(special[role] for role in order), *extra], names)
    if of_class is not _AS_IT_IS:
        tokenizer.post_processor = _template(folder, tokenizer, of_class, names)
    is_split = bool(config.get("split_special_tokens"))
    inputs = config.get("model_input_names", ["token_type_ids"] * of_class.number_segments)
    return TokenizerFiles(tokenizer, names, is_split, "token_type_ids" in inputs)


def _token(value: Any, **flags: Any) -> AddedToken:
    """Return a token of a file, which may be a name or may have flags. A name is special."""
    if isinstance(value, str):
        return AddedToken(value, special=True, **flags)
    names = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(**{name: value[name] for name in names if name in value})


def _special_tokens(
    config: Config, of_class: _TokenizerClass
) -> tuple[dict[str, AddedToken], list[AddedToken]]:
    """Return the special tokens that files name: by their roles, and without a role."""
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    named = {
        name: token
        for name, token in config.items()
        if name.endswith("_token") and isinstance(token, (str, Mapping))
    }
    if isinstance(extra, Mapping):
        named, extra = {**named, **extra}, []
    roles = {name.removesuffix("_token"): token for name, token in named.items()}
    flags = of_class.flags
    given = {role: _token(token, **flags.get(role, {})) for role, token in roles.items()}
    return given, list(map(_token, extra))


def _added_tokens(
    folder: Folder, config: Config, file: Config, special: list[AddedToken]
) -> list[AddedToken]:
    """Return the tokens that files add to the vocabulary, in the order of their ids."""
    added = {}
    if "added_tokens_decoder" in config:
        added = {int(i): _token(token) for i, token in config["added_tokens_decoder"].items()}
    else:
        names = {token.content for token in special}
        for name, i in optional_json(folder, "added_tokens.json").items():
            added[i] = AddedToken(name, normalized=name not in names, special=name in names)
        added |= {token["id"]: _token(token) for token in file.get("added_tokens", ())}
    return [added[i] for i in sorted(added)]


def _add_tokens(
    tokenizer: tokenizers.Tokenizer,
    added: list[AddedToken],
    special: list[AddedToken],
    names: dict[str, str],
) -> None:
    """Add tokens to a tokenizer. Those of the files go first, with their flags."""
    present = tokenizer.get_added_tokens_decoder().values()
    # A token with other flags replaces the one that is present.
    with_flags = set(map(repr, present))
    tokens = [token for token in added if repr(token) not in with_flags]
    known = {token.content for token in (*present, *tokens)}
    for token in special:
        if token.content not in known:
            tokens.append(token)
            known.add(token.content)
    for token in tokens:
        token.special |= token.content in names.values()
    tokenizer.add_tokens(tokens)


# Where `tokenizer.json` has the settings of classes.
_IN_FILE = {
    "do_lower_case": ("normalizer", "lowercase"),
    "strip_accents": ("normalizer", "strip_accents"),
    "tokenize_chinese_chars": ("normalizer", "handle_chinese_chars"),
    "add_prefix_space": ("pre_tokenizer", "add_prefix_space"),
}


def _settings(folder: Folder, of_class: _TokenizerClass, config: Config, file: Config) -> Config:
    """Return the settings of a class of tokenizers."""
    kind = file["model"].get("type", of_class.model)
    if of_class is not _AS_IT_IS and kind != of_class.model:
        raise ValueError(
            f"The `tokenizer_class` of {os.fspath(folder)!r} needs a model of the type "
            f"{of_class.model!r}. Received: tokenizer_class={config.get('tokenizer_class')!r} in "
            f"tokenizer_config.json, and the type {kind!r} in {FILE}"
        )
    for name, default in of_class.settings.items():
        part, key = _IN_FILE.get(name, ("", ""))
        value = (file.get(part) or {}).get(key, default)
        if name not in config and value != default:
            raise ValueError(
                f"`{name}` must be in tokenizer_config.json of {os.fspath(folder)!r}, because "
                f"`transformers` 5 takes {default} for it, and earlier versions {key!r} of {FILE}. "
                f"Received: no {name!r}, and {key}={value} in {FILE}. Write the right one there."
            )
    return {**of_class.settings, **{k: config[k] for k in of_class.settings if k in config}}


def _template(
    folder: Folder,
    tokenizer: tokenizers.Tokenizer,
    of_class: _TokenizerClass,
    names: dict[str, str],
) -> Any:
    """Return the template of a class with the names of special tokens."""
    roles = set(re.findall(r"{(\w+)}", of_class.single))
    if missing := sorted(roles - names.keys()):
        raise ValueError(
            f"The vocabulary of {os.fspath(folder)!r} must have the special tokens of its "
            f"`tokenizer_class`. Received: no {', '.join(missing)}"
        )
    single, pair = (
        [piece.format(**names) for piece in template.split()]
        for template in (of_class.single, of_class.pair)
    )
    tokens = [(names[role], tokenizer.token_to_id(names[role])) for role in roles]
    template = processors.TemplateProcessing(single=single, pair=pair, special_tokens=tokens)
    if of_class.model != "BPE":
        return template
    # It counts no spaces to the span of a word.
    trim = processors.ByteLevel(add_prefix_space=tokenizer.pre_tokenizer.add_prefix_space)
    return processors.Sequence([trim, template])


def has_tokenizer(folder: Folder) -> bool:
    """Return whether a folder has a file from which `HuggingFaceTokenizer` is made."""
    if (Path(folder) / FILE).is_file() or not (Path(folder) / PIECES).is_file():
        return (Path(folder) / FILE).is_file()
    return _class_of(folder, optional_json(folder, "tokenizer_config.json")) is _DEBERTA


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
