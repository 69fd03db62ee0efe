"""Checks of the sources and targets that users pass to a sequence-to-sequence model."""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_diet.models.hub.listed import listed
from keras_diet.models.hub.texts import (
    batch_sizes,
    check_batch,
    check_texts_are_not_blank,
    check_texts_are_strings,
    is_nested_text,
    is_one_text,
)

# KerasHub's names.
SOURCE, TARGET = "encoder_text", "decoder_text"


def check_text_pairs(x: Any) -> None:
    """Raise a `ValueError` unless `x` holds sources and as many targets.

    Args:
        x: What the user passes. A dictionary of a string each, or of lists, arrays or tensors of
            strings, is right.
    """
    if not isinstance(x, Mapping) or set(x) != {SOURCE, TARGET}:
        keys = f" with the keys {listed(x)}" if isinstance(x, Mapping) else ""
        raise ValueError(
            f"A model needs sources and targets. Received: x of type {type(x).__name__}{keys}, and "
            f"no y. Pass sources as `x` and targets as `y`, or a dictionary with the keys "
            f"{SOURCE!r} and {TARGET!r}. To get targets for sources, call `generate`."
        )
    for name in (SOURCE, TARGET):
        check_flat_texts(x[name], name)
    sizes = [batch_sizes(x[name]) for name in (SOURCE, TARGET)]
    are_single = [is_one_text({name: x[name]}) for name in (SOURCE, TARGET)]
    # A graph of TensorFlow does not know its batch size.
    if are_single[0] != are_single[1] or (all(sizes) and sizes[0] != sizes[1]):
        counts = [
            "one string" if is_single else f"a batch of {size[0] if size else 'unknown size'}"
            for is_single, size in zip(are_single, sizes, strict=True)
        ]
        raise ValueError(
            f"There must be as many targets as sources. Received: {counts[0]} in `{SOURCE}`, "
            f"{counts[1]} in `{TARGET}`. Pass one target for each source."
        )
    check_batch(x)
    check_texts_are_not_blank(x[SOURCE], SOURCE)


def check_flat_texts(texts: Any, name: str) -> None:
    """Raise a `ValueError` unless `texts` is a string, or a flat batch of strings."""
    if isinstance(texts, tuple) or is_nested_text(texts):
        raise ValueError(
            f"`{name}` must be a string, a list of strings, or an array of strings. Received: "
            "texts in tuples, in lists of lists, or in an array of several axes. Put all sources "
            "into one list, and all targets into another one."
        )
    check_texts_are_strings(texts, name)


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
