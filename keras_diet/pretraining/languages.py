"""How often each language is read, if a model learns several languages."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from keras_diet import validation

T = TypeVar("T")


def language_probabilities(sizes: Mapping[str, int], sampling_exponent: float) -> dict[str, float]:
    """Return the probability of each language, as in XLM.

    With `p_i`, the share of language `i` in all data,

        q_i = p_i**sampling_exponent / sum_j p_j**sampling_exponent

    With an exponent of 1, languages keep their shares. With smaller exponents, languages with
    little data are read more often. With 0, all languages are read equally often.

    Args:
        sizes: Mapping of each language to the size of its data, such as the number of sentences.
        sampling_exponent: float in [0, 1]. XLM has 0.5 for its vocabulary, and 0.7 for its batches.

    Returns:
        Dictionary of each language and its probability.

    Raises:
        ValueError: If a size is not a positive integer, or if `sampling_exponent` is out of range.

    Example:

    ```python
    keras_diet.pretraining.language_probabilities({"en": 900, "sw": 100}, sampling_exponent=0.5)
    # {"en": 0.75, "sw": 0.25}
    ```

    References:
     - [Lample and Conneau, 2019](https://arxiv.org/abs/1901.07291), section 3.1
    """
    exponent = validation.rate("sampling_exponent", sampling_exponent)
    for language, size in sizes.items():
        validation.positive_int(f"sizes[{language!r}]", size)
    shares = np.array(list(sizes.values()), "float64") / sum(sizes.values())
    probabilities = shares**exponent / np.sum(shares**exponent)
    return dict(zip(sizes, probabilities.tolist(), strict=True))


def sample_languages(
    texts: Mapping[str, Iterable[T]],
    sampling_exponent: float = 0.5,
    seed: int = 0,
    num_samples: int | None = None,
) -> Iterator[T]:
    """Yield texts of several languages, mixed as `language_probabilities` says.

    One call is one epoch. Language `i` has `round(q_i * num_samples)` texts in it, at least one, at
    random places. If this is more than the language has, its texts repeat: each of them comes
    equally often, or once more. If this is less, the texts are a random part without repetitions.
    The texts of a language stay in their order. The same arguments give the same texts. Another
    `seed` gives another epoch, with other parts.

    Args:
        texts: Mapping of each language to its sentences or documents. They are counted first, so
            they are read several times: pass lists, not iterators.
        sampling_exponent: float in [0, 1]. As in `language_probabilities`. Defaults to `0.5`.
        seed: int. Seed of the order and of the parts. Defaults to `0`.
        num_samples: int or `None`. The number of texts in an epoch, up to rounding. Defaults to
            `None`, which means the number of all texts.

    Returns:
        An iterator of texts.

    Raises:
        ValueError: If a language has no texts, or if they can be read only once.

    Example:

    ```python
    texts = {"en": ["one", "two", "three", "four"], "sw": ["moja"]}
    list(keras_diet.pretraining.sample_languages(texts, sampling_exponent=0.0, num_samples=6))
    # three of the English texts, and "moja" three times
    ```

    References:
     - [Lample and Conneau, 2019](https://arxiv.org/abs/1901.07291), section 3.1
    """
    validation.optional_positive_int("num_samples", num_samples)
    for language, of_language in texts.items():
        if isinstance(of_language, (str, Iterator)):
            raise ValueError(
                f"`texts[{language!r}]` must be a list, which can be read several times. Received: "
                f"{type(of_language).__name__}"
            )
    sizes = {language: _count(of_language) for language, of_language in texts.items()}
    probabilities = language_probabilities(sizes, sampling_exponent)
    total = num_samples or sum(sizes.values())
    counts = [max(1, round(total * probability)) for probability in probabilities.values()]
    generator = np.random.default_rng(seed)
    streams = [
        _repeated(texts[language], sizes[language], count, generator.spawn(1)[0])
        for language, count in zip(sizes, counts, strict=True)
    ]
    order = np.repeat(np.arange(len(counts)), counts)
    generator.shuffle(order)
    return (next(streams[i]) for i in order)


def _count(texts: Iterable[Any]) -> int:
    return len(texts) if isinstance(texts, Collection) else sum(1 for _ in texts)


def _repeated(
    texts: Iterable[T], size: int, count: int, generator: np.random.Generator
) -> Iterator[T]:
    """Yield `count` of `size` texts: all of them several times, then a random part."""
    passes, rest = divmod(count, size)
    for _ in range(passes):
        yield from texts
    is_chosen = np.zeros(size, "bool")
    is_chosen[generator.permutation(size)[:rest]] = True
    yield from (text for text, chosen in zip(texts, is_chosen, strict=True) if chosen)
