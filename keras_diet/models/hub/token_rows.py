"""Token ids of texts as arrays of one length, the lengths to choose from, and the best of rows."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Template(NamedTuple):
    """The special tokens of a sequence: before, between and after its texts.

    Attributes:
        start: list of int. The tokens before the first text.
        separator: list of int. The tokens between two texts. They belong to the first of them.
        end: list of int. The tokens after the last text.
        numbers_segments: bool. Whether segment ids number the texts. Otherwise they are all 0.
        favors_longest: bool. Whether the last token with room for a pair is of the longer text, and
            of the second one of equal texts, as in `transformers`. Otherwise it is of the first.
    """

    start: list[int]
    separator: list[int]
    end: list[int]
    numbers_segments: bool = True
    favors_longest: bool = False

    def room(self, length: int, num_texts: int = 1) -> int:
        """Return how many tokens of some texts fit into a sequence.

        Raises:
            ValueError: If none fits.
        """
        num_special = len(self.start) + (num_texts - 1) * len(self.separator) + len(self.end)
        if length <= num_special:
            raise ValueError(
                f"`sequence_length` must be at least {num_special + 1}, for the special tokens of "
                f"{num_texts} segments and one token. Received: sequence_length={length}"
            )
        return length - num_special


def template_of(tokenizer: Any) -> Template:
    """Return the template of a tokenizer. By default, a separator is the end token, as in BERT."""
    end = [tokenizer.end_token_id]
    template = getattr(tokenizer, "template", None)
    return template or Template([tokenizer.start_token_id], end, end)


def padded(rows: Sequence[Sequence[int]], lengths: Sequence[int], value: int = 0) -> np.ndarray:
    """Return rows of numbers as an array, padded to the smallest length that holds all of them.

    Args:
        rows: Lists of integers.
        lengths: The lengths to choose from, which increase.
        value: int. The padding. Defaults to `0`.
    """
    longest = max(map(len, rows))
    length = next(length for length in lengths if length >= longest)
    array = np.full((len(rows), length), value, "int32")
    array[mask_of_rows(rows, length)] = list(itertools.chain.from_iterable(rows))
    return array


def mask_of_rows(rows: Sequence[Sequence[int]], length: int) -> np.ndarray:
    """Return booleans of shape `(B, length)`: where `padded` puts the numbers of rows."""
    return np.arange(length) < np.array([len(row) for row in rows])[:, None]


def inputs_of(
    rows: Sequence[Sequence[int]],
    segments: Sequence[Sequence[int]],
    lengths: Sequence[int],
    pad: int,
) -> dict[str, np.ndarray]:
    """Return the inputs of a model: `"token_ids"`, `"segment_ids"` and `"padding_mask"`.

    The mask of a sequence is its length, because a text may contain the padding token.

    Args:
        rows: The tokens of each sequence.
        segments: The segment of each token.
        lengths: The lengths to choose from, which increase.
        pad: The padding token.
    """
    token_ids = padded(rows, lengths, pad)
    return {
        "token_ids": token_ids,
        "segment_ids": padded(segments, lengths),
        "padding_mask": mask_of_rows(rows, token_ids.shape[1]),
    }


def buckets_of(padding_mask: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
    """Return the smallest length that holds each sequence.

    Args:
        padding_mask: Array of shape `(B, T)`.
        lengths: The lengths to choose from, which increase. The last one is `T`.
    """
    return np.array(lengths)[np.searchsorted(lengths, padding_mask.sum(-1))]


def pack_documents(arrays: dict[str, np.ndarray], pad: int) -> dict[str, np.ndarray]:
    """Put several texts into one row: the longest text first, each into the first row with room.

    Args:
        arrays: Arrays of shape `(N, T)` with a row for each text, such as `"token_ids"` and
            `"padding_mask"`. Padding is at the end.
        pad: int. The padding token.

    Returns:
        The arrays with fewer rows, `(R, T)`, and two others. `"document_ids"` `(R, T)` number the
        texts from 1 on, in their order. `"document_first_tokens"` `(N,)` has the index of the first
        token of each text, counted over all rows. `R` has four significant binary digits, so that
        compilers see few sizes. For this, the last rows may be padding.
    """
    number, length = arrays["padding_mask"].shape
    sizes = arrays["padding_mask"].sum(axis=1)
    room, first_tokens = np.full(number, length), np.zeros(number, "int32")
    for i in np.argsort(-sizes, kind="stable"):
        row = np.argmax(room >= sizes[i])
        first_tokens[i] = (row + 1) * length - room[row]
        room[row] -= sizes[i]
    num_rows = int(np.sum(room < length))
    step = 2 ** max(num_rows.bit_length() - 4, 0)
    num_rows = min(math.ceil(num_rows / step) * step, number)
    is_token = arrays["padding_mask"]
    indices = (first_tokens[:, None] + np.arange(length))[is_token]

    def packed(array, value=0):
        rows = np.full(num_rows * length, value, array.dtype)
        rows[indices] = array[is_token]
        return rows.reshape(num_rows, length)

    numbers = np.arange(1, number + 1, dtype="int32")[:, None]
    return {
        **{name: packed(a, pad if name == "token_ids" else 0) for name, a in arrays.items()},
        "document_ids": packed(np.broadcast_to(numbers, is_token.shape)),
        "document_first_tokens": first_tokens,
    }


def pack_segments(
    segments: Sequence[Sequence[Sequence[int]]],
    tokenizer: Any,
    lengths: Sequence[int],
    truncate: str,
) -> dict[str, np.ndarray]:
    """Return the inputs of a model for texts of one or several segments.

    A row is what the template of the tokenizer says. In BERT, it is the start token, and then each
    segment followed by the end token, as from `keras_hub.layers.MultiSegmentPacker`.

    Args:
        segments: For each segment, the tokens of all texts.
        tokenizer: It knows the ids of the special tokens.
        lengths: The lengths that the arrays may have. Longer texts are cut off.
        truncate: `"round_robin"`, which keeps as many tokens of each segment as possible, or
            `"waterfall"`, which fills the row with the first segments.
    """
    template, last = template_of(tokenizer), len(segments) - 1
    room = template.room(lengths[-1], len(segments))
    token_rows, segment_rows = [], []
    for row in zip(*segments, strict=True):
        tokens, segment_ids = [*template.start], [0] * len(template.start)
        for i, size in enumerate(_kept(list(map(len, row)), room, truncate, template)):
            after = template.end if i == last else template.separator
            tokens += [*row[i][:size], *after]
            segment_ids += [i * template.numbers_segments] * (size + len(after))
        token_rows.append(tokens)
        segment_rows.append(segment_ids)
    return inputs_of(token_rows, segment_rows, lengths, tokenizer.pad_token_id)


def _kept(sizes, room, truncate, template):
    """Return how many tokens of each segment fit."""
    if sum(sizes) <= room:
        return sizes
    if truncate == "waterfall":
        starts = [0, *itertools.accumulate(sizes)]
        return [min(size, max(room - start, 0)) for size, start in zip(sizes, starts, strict=False)]
    # All segments up to the same size, and one more token of some that have it.
    level = next(n for n in itertools.count() if sum(min(size, n + 1) for size in sizes) > room)
    kept = [min(size, level) for size in sizes]
    order = list(range(len(sizes)))
    if template.favors_longest and len(sizes) == 2:
        order.sort(key=lambda i: (-sizes[i], -i))
    for i in order:
        kept[i] += sizes[i] > level and sum(kept) < room
    return kept


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the `count` largest values, the largest first, and equal ones in order.

    Sorting all values would take ten times as long. NaN is kept, so that results show it.
    """
    limit = np.partition(values, -count)[-count] if len(values) > count else -np.inf
    best = np.flatnonzero(~(values < limit))
    return best[np.argsort(-values[best], kind="stable")][:count]
