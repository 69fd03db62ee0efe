"""A WordPiece vocabulary, trained with the `tokenizers` package."""

import collections
from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from tqdm import tqdm

from keras_diet import validation

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def train_wordpiece_vocabulary(
    texts: Iterable[str],
    vocabulary_size: int,
    lowercase: bool = True,
    special_tokens: Sequence[str] = SPECIAL_TOKENS,
    min_frequency: int = 2,
    show_progress: bool = True,
    *,
    strip_accents: bool = False,
    limit_alphabet: int = 1000,
) -> list[str]:
    """Train a WordPiece vocabulary for `keras_diet.models.DietBertTokenizer`.

    Words are cleaned, folded and split by BERT's rule: at white space and punctuation, and around
    each ideograph. The tokenizer has the same rule, so it looks up the words that were trained.
    `keras_hub.models.BertTokenizer` can use the vocabulary too. It folds and splits rare characters
    in another way.

    Training starts from single characters. In each step, the two adjacent pieces that occur
    together most often become a new piece, until the vocabulary is full. Pieces inside a word
    start with `##`.

    The result depends only on the arguments. Only the distinct words and their counts are kept in
    memory.

    Args:
        texts: Iterable of str. Text of any length, e.g. the lines of documents.
        vocabulary_size: int. Largest number of tokens, including the special tokens. A small text
            gives fewer tokens. The paper uses 30,000 (section 4.1).
        lowercase: bool. Whether to fold the case of words. Give the tokenizer the same value.
            Defaults to `True`.
        special_tokens: Sequence of str. Tokens with the first ids, in this order. `[PAD]` should be
            the first one, because parts of KerasHub pad with id 0.
            Defaults to `("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")`.
        min_frequency: int. How often a pair of pieces must occur to become a piece.
            Defaults to `2`.
        show_progress: bool. Whether to print progress. Defaults to `True`.
        strip_accents: bool. Whether to remove accents. Give the tokenizer the same value. Defaults
            to `False`.
        limit_alphabet: int. Number of characters to keep. The most frequent characters are kept.
            A word with another character is not trained, and the tokenizer turns it into `[UNK]`.
            Chinese needs about 20,000. Defaults to `1000`.

    Returns:
        List of tokens. The position of a token is its id.

    Raises:
        ValueError: If `vocabulary_size` is too small for the special tokens and the alphabet, or if
            `texts` is one string, or does not contain a word.

    Example:

    ```python
    texts = ["The quick brown fox.", "The quick red fox."]
    vocabulary = keras_diet.pretraining.train_wordpiece_vocabulary(texts, vocabulary_size=100)
    tokenizer = keras_diet.models.DietBertTokenizer(vocabulary, lowercase=True)
    tokenizer.detokenize(tokenizer("The brown fox."))  # "the brown fox ."
    ```

    References:
     - [Schuster and Nakajima, 2012](https://research.google/pubs/pub37842/)
     - [Devlin et al., 2019](https://aclanthology.org/N19-1423/)
    """
    special_tokens = list(special_tokens)
    validation.positive_int("limit_alphabet", limit_alphabet)
    if isinstance(texts, str):
        raise ValueError(
            f"`texts` must be an iterable of strings, not one string. Received: {texts[:50]!r}"
        )
    texts = tqdm(texts, "Counting words", unit=" texts", disable=not show_progress)
    words = _count_words(texts, lowercase, strip_accents)
    if not words:
        raise ValueError("Empty training text: `texts` must contain at least one word.")
    alphabet = _alphabet(words, limit_alphabet)
    pieces = _single_characters(words, alphabet)
    if len(special_tokens) + len(pieces) > vocabulary_size:
        raise ValueError(
            f"`vocabulary_size` must have room for {len(special_tokens)} special tokens and "
            f"{len(pieces)} single characters. Received: {vocabulary_size}. Or decrease "
            "`limit_alphabet`."
        )
    words = {word: count for word, count in words.items() if alphabet.issuperset(word)}
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        # The trainer numbers pieces in the order of a hash map. This order decides ties and
        # differs between runs. Pieces that are listed here keep their order.
        special_tokens=special_tokens + pieces,
        show_progress=show_progress,
    )
    return _train(words, trainer)


def _count_words(texts, lowercase, strip_accents):
    normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    splitter = pre_tokenizers.BertPreTokenizer()
    counts = collections.Counter()
    for text in texts:
        words = splitter.pre_tokenize_str(normalizer.normalize_str(text))
        counts.update(word for word, _ in words)
    return counts


def _alphabet(words, limit):
    counts = collections.Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    return set(sorted(counts, key=lambda character: (-counts[character], character))[:limit])


def _single_characters(words, alphabet):
    inside = {character for word in words if len(word) > 1 for character in word}
    return sorted(alphabet) + [f"##{character}" for character in sorted(alphabet & inside)]


def _train(words, trainer):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\n", "removed")
    tokenizer.train_from_iterator(_repeated(words), trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.get)


def _repeated(words, most=1000):
    for word, count in sorted(words.items()):
        for start in range(0, count, most):
            yield "\n".join([word] * min(most, count - start))
