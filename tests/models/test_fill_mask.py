"""`fill_mask` of a masked language model."""

import numpy as np
import pytest
from keras import ops

from tests.models.tasks import tiny_preprocessor, tiny_task
from tests.models.tiny import SIZES, VOCABULARY, randomize_weights

# [PAD] is not token 0, and the vocabulary of the tokenizer is smaller than that of the backbone.
SHUFFLED = [*VOCABULARY[5:9], *VOCABULARY[:5], *VOCABULARY[9:-2]]


@pytest.fixture(scope="module")
def masked_lm():
    return randomize_weights(tiny_task("masked_lm", vocabulary=SHUFFLED), seed=5)


def expected_probabilities(model, words, mask_at):
    """Probabilities of the tokens for a text of whole words, one at a time, without padding."""
    words = ["[CLS]", *words, "[SEP]"]
    ids = np.array([[SHUFFLED.index(word) for word in words]])
    inputs = {
        "token_ids": ids,
        "segment_ids": np.zeros_like(ids),
        "padding_mask": np.ones_like(ids),
        "mask_positions": np.array([[mask_at + 1]]),
    }
    logits = ops.convert_to_numpy(model(inputs))[0, 0]
    probabilities = np.exp(logits - logits.max())
    return (probabilities / probabilities.sum())[: len(SHUFFLED)]


def test_tokens_of_one_mask(masked_lm):
    found = masked_lm.fill_mask("the quick [MASK] jump over", top_k=3)
    words = ["the", "quick", "[MASK]", "jump", "over"]
    expected = expected_probabilities(masked_lm, words, 2)
    best = np.argsort(-expected)[:3]
    assert [result["token"] for result in found] == [SHUFFLED[i] for i in best]
    np.testing.assert_allclose([result["probability"] for result in found], expected[best], 1e-4)
    assert [result["text"] for result in found] == [
        f"the quick {SHUFFLED[i]} jump over".replace(" ##", "") for i in best
    ]


def test_several_masks_and_texts(masked_lm):
    texts = ["[MASK] cat", "the [MASK] sleep [MASK] .", "a lazy [MASK]"]
    first, second, third = masked_lm.fill_mask(texts, top_k=2)
    assert [result["text"] for result in first] == [f"{r['token']} cat" for r in first]
    words = ["the", "[MASK]", "sleep", "[MASK]", "."]
    for found, position in zip(second, (1, 3), strict=True):
        expected = expected_probabilities(masked_lm, words, position)
        assert [r["token"] for r in found] == [SHUFFLED[i] for i in np.argsort(-expected)[:2]]
    assert second[0][0]["text"] == f"the {second[0][0]['token']} sleep [MASK] ."
    assert second[1][1]["text"] == f"the [MASK] sleep {second[1][1]['token']} ."
    alone = masked_lm.fill_mask("a lazy [MASK]", top_k=2)
    assert [result["text"] for result in third] == [result["text"] for result in alone]
    assert len(masked_lm.fill_mask("a lazy [MASK]")) == 5


@pytest.mark.any_backend
def test_parts_of_words_are_joined(masked_lm):
    found = masked_lm.fill_mask("the quick [MASK] jump", top_k=len(SHUFFLED))
    (result,) = [result for result in found if result["token"] == "##ing"]
    assert result["text"] == "the quicking jump"
    (result,) = [result for result in masked_lm.fill_mask("[MASK]", 29) if result["token"] == "##s"]
    assert result["text"] == "s"


@pytest.mark.any_backend
def test_more_texts_than_a_batch(masked_lm):
    texts = ["the [MASK]", "a [MASK] lazy dog", "[MASK] the cat"] * 12
    found = masked_lm.fill_mask(texts, top_k=1)
    assert len(found) == 36
    alone = [masked_lm.fill_mask(text, top_k=1)[0] for text in texts[:3]]
    assert len({result["token"] for result in alone}) > 1
    for (result,), expected in zip(found, alone * 12, strict=True):
        assert (result["token"], result["text"]) == (expected["token"], expected["text"])
        assert result["probability"] == pytest.approx(expected["probability"], rel=1e-4)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "texts, top_k, message",
    [
        ("the fox", 5, r"contain `\[MASK\]`. Received: 'the fox' in row 0"),
        (["a [MASK]", "a fox"], 5, "'a fox' in row 1"),
        (["a [MASK]", None], 5, "None in row 1"),
        ([], 5, "an empty batch"),
        (("a [MASK]", "a fox"), 5, "string or a list of strings. Received: tuple"),
        (b"a [MASK]", 5, "Received: bytes"),
        (np.array([["a [MASK]"]]), 5, "several axes"),
        ("a [MASK]", 0, "`top_k` must be a positive integer"),
        ("a [MASK]", len(SHUFFLED) + 1, f"at most the number of tokens, {len(SHUFFLED)}"),
        ("the fox [MASK] " * 4, 5, r"sequence_length=13 tokens.*Received: 14 tokens in row 0"),
    ],
    ids=str,
)
def test_refused(masked_lm, texts, top_k, message):
    with pytest.raises(ValueError, match=message):
        masked_lm.fill_mask(texts, top_k=top_k)


@pytest.mark.any_backend
@pytest.mark.parametrize("preprocessor", [None, lambda x: x], ids=["none", "function"])
def test_the_own_preprocessor_is_needed(preprocessor):
    model = tiny_task("masked_lm", with_preprocessor=False)
    model.preprocessor = preprocessor
    message = "`fill_mask` needs a preprocessor.*with a `DietBertMaskedLMPreprocessor`"
    with pytest.raises(ValueError, match=message):
        model.fill_mask("a [MASK]")


@pytest.mark.any_backend
def test_a_preprocessor_that_is_set_later_must_fit():
    model = tiny_task("masked_lm")
    length = model.backbone.max_sequence_length
    model.preprocessor = tiny_preprocessor("masked_lm", sequence_length=length + 1)
    with pytest.raises(ValueError, match=rf"sequence_length={length + 1}, backbone.*={length}\."):
        model.fill_mask("a [MASK]")


@pytest.mark.any_backend
def test_the_longest_text_fits():
    model = tiny_task("masked_lm")
    model.preprocessor = tiny_preprocessor("masked_lm", sequence_length=5)
    assert len(model.fill_mask("the [MASK] fox", top_k=len(VOCABULARY))) == SIZES["vocabulary_size"]
    with pytest.raises(ValueError, match=r"sequence_length=5 tokens.*6 tokens"):
        model.fill_mask("the [MASK] fox .")
