"""The sources and targets that users pass to a sequence-to-sequence model."""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_diet.models.hub.classes import listed
from keras_diet.models.hub.columns import number_of_rows, texts_of

# KerasHub's names.
SOURCE, TARGET = "encoder_text", "decoder_text"


def text_pairs(x: Any) -> dict[str, list[str]]:
    """Return sources and as many targets as lists of strings.

    Args:
        x: A dictionary of both, each a string or a batch of strings.

    Raises:
        ValueError: If there are no targets, if texts are missing, or if a source is empty.
    """
    if not isinstance(x, Mapping) or set(x) != {SOURCE, TARGET}:
        keys = f" with the keys {listed(x)}" if isinstance(x, Mapping) else ""
        raise ValueError(
            f"A model needs sources and targets. Received: x of type {type(x).__name__}{keys}, and "
            f"no y. Pass sources as `x` and targets as `y`, or a dictionary with the keys "
            f"{SOURCE!r} and {TARGET!r}. To get targets for sources, call `generate`."
        )
    pairs = {name: texts_of(x[name], name) for name in (SOURCE, TARGET)}
    number_of_rows(**pairs)
    for row, text in enumerate(pairs[SOURCE]):
        if not text.strip():
            raise ValueError(
                f"`{SOURCE}` must hold texts that are not empty. Received: {text!r} in row {row}. "
                "Remove such rows."
            )
    return pairs


def check_has_tokens(name: str, tokens: Sequence[Any]) -> None:
    """Raise a `ValueError` that names the first text without tokens, such as an invisible one."""
    for row, each in enumerate(tokens):
        if not len(each):
            raise ValueError(
                f"`{name}` must hold texts that are not empty. Received: no token in row {row}. "
                "Remove such rows."
            )


def check_number_of_tokens(
    name: str, tokens: Sequence[Any], limit: int, argument: str, length: int
) -> None:
    """Raise a `ValueError` that names the first text with too many tokens.

    Args:
        name: str. The name of the texts.
        tokens: The tokens of each text.
        limit: int. The largest number of tokens.
        argument: str. The name of the argument that sets the limit.
        length: int. Its value.
    """
    for row, each in enumerate(tokens):
        if len(each) > limit:
            raise ValueError(
                f"`{name}` must have at most {limit} tokens, because {argument}={length} includes "
                f"special tokens. Received: {len(each)} tokens in row {row}. Shorten the text, or "
                f"choose a larger `{argument}` if the model takes it."
            )
