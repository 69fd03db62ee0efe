"""The text pairs of `translate.py`: two text files, or numbers in words and in digits."""

import sys
from pathlib import Path

import numpy as np

_WORDS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety
"""
_ONES, _TENS = _WORDS.split()[:20], _WORDS.split()[20:]


def read_lines(path):
    """Return the lines of a UTF-8 file, or of the standard input for "-".

    Only a line feed ends a line. Texts of the web hold other separators, such as U+2028, at which
    `str.splitlines` would split. The lines of two files would then not belong together.
    """
    data = sys.stdin.buffer.read() if str(path) == "-" else Path(path).read_bytes()
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        sys.exit(f"{path} must be UTF-8 text: {error}. Convert the file.")
    if not lines[-1]:
        # The last line ends with a line feed too.
        lines.pop()
    return [line.strip() for line in lines]


def read_pairs(source, target):
    """Return the lines of two files. Line by line, the second is the translation of the first."""
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        sys.exit(
            f"{source} has {len(sources)} lines and {target} has {len(targets)}. "
            "Each line of one file needs its translation in the same line of the other."
        )
    empty = [i for i, line in enumerate(sources) if not line]
    if empty:
        sys.exit(f"{source} has empty lines, the first in line {empty[0] + 1}. Remove them.")
    return sources, targets


def number_pairs():
    """Return numbers up to 999,999 in words and in digits, and other numbers for validation.

    The place of a digit depends on words after it, so a translator needs the order of the words.
    """
    generator = np.random.default_rng(0)
    # As many short numbers as long ones.
    exponents = generator.uniform(1, 6, size=12_000)
    numbers = np.unique((10**exponents).astype(int))
    generator.shuffle(numbers)
    pairs = [(in_words(int(number)), " ".join(str(number))) for number in numbers]
    (*train,) = zip(*pairs[500:], strict=True)
    (*validation,) = zip(*pairs[:500], strict=True)
    return [list(column) for column in train], [list(column) for column in validation]


def in_words(number):
    """Return a number below a million in words."""
    if number >= 1000:
        thousands, rest = divmod(number, 1000)
        joint = " and " if rest < 100 else " "
        return f"{in_words(thousands)} thousand" + (joint + in_words(rest) if rest else "")
    if number >= 100:
        hundreds, rest = divmod(number, 100)
        return f"{_ONES[hundreds]} hundred" + (f" and {in_words(rest)}" if rest else "")
    if number >= 20:
        tens, rest = divmod(number, 10)
        return _TENS[tens - 2] + (f" {_ONES[rest]}" if rest else "")
    return _ONES[number]
