"""`DietTransformerSeq2SeqLMPreprocessor`: pairs of texts to inputs and labels, and back."""

import keras
import numpy as np
import pytest

from keras_diet.models import DietTransformerSeq2SeqLMPreprocessor, DietTransformerTokenizer
from tests.helpers import to_numpy
from tests.models.diet_transformer.pairs import SOURCES, TARGETS

PAIRS = {"encoder_text": SOURCES, "decoder_text": TARGETS}


def make(tokenizer, **arguments):
    arguments = {"encoder_sequence_length": 71, "decoder_sequence_length": 67, **arguments}
    return DietTransformerSeq2SeqLMPreprocessor(tokenizer, **arguments)


@pytest.fixture
def preprocessor(tokenizer):
    return make(tokenizer)


def as_lists(outputs):
    return keras.tree.map_structure(lambda value: to_numpy(value).tolist(), outputs)


def padded(rows, length, pad):
    return [row + [pad] * (length - len(row)) for row in rows]


def mask(rows, length):
    return padded([[True] * len(row) for row in rows], length, False)


def tokens(tokenizer, texts):
    return [tokenizer(text).tolist() for text in texts]


def expected(tokenizer, source_length=71, target_length=67):
    """Inputs, labels and weights of all pairs, as lists."""
    start, end, pad = tokenizer.start_token_id, tokenizer.end_token_id, tokenizer.pad_token_id
    sources = [[*row[: source_length - 1], end] for row in tokens(tokenizer, SOURCES)]
    targets = [row[: target_length - 1] for row in tokens(tokenizer, TARGETS)]
    decoder = [[start, *row] for row in targets]
    labels = [[*row, end] for row in targets]
    inputs = {
        "encoder_token_ids": padded(sources, source_length, pad),
        "encoder_padding_mask": mask(sources, source_length),
        "decoder_token_ids": padded(decoder, target_length, pad),
        "decoder_padding_mask": mask(decoder, target_length),
    }
    return inputs, padded(labels, target_length, pad), mask(labels, target_length)


# === Training ===


@pytest.mark.filterwarnings("ignore:.* pairs are cut")
def test_inputs_labels_and_weights(tokenizer, preprocessor):
    outputs = preprocessor(SOURCES, TARGETS)
    assert isinstance(outputs, tuple)
    assert as_lists(outputs) == expected(tokenizer)
    longest = max(map(len, tokens(tokenizer, SOURCES)))
    assert 10 < longest < 70, "no text of this test is cut"
    short = make(tokenizer, encoder_sequence_length=7, decoder_sequence_length=5)
    assert as_lists(short(PAIRS)) == expected(tokenizer, 7, 5)
    assert as_lists(preprocessor((SOURCES, TARGETS))) == expected(tokenizer)
    # A target may be empty.
    _, labels, weights = as_lists(preprocessor(["a fox"], [""]))
    assert labels[0][:2] == [tokenizer.end_token_id, tokenizer.pad_token_id]
    assert sum(weights[0]) == 1


@pytest.mark.any_backend("tensorflow")
@pytest.mark.filterwarnings("ignore:.* pairs are cut")
def test_graphs_of_tensorflow(shuffled_proto):
    """Without `length_buckets`."""
    tf = pytest.importorskip("tensorflow")
    pytest.importorskip("tensorflow_text")
    preprocessor = make(DietTransformerTokenizer(shuffled_proto), encoder_sequence_length=17)
    whole = as_lists(preprocessor(tf.constant(SOURCES), tf.constant(TARGETS)))
    assert whole == as_lists(preprocessor(SOURCES, TARGETS))
    function = tf.autograph.experimental.do_not_convert(lambda *pair: preprocessor(*pair))
    for data in ((SOURCES, TARGETS), PAIRS):
        pairs = tf.data.Dataset.from_tensor_slices(data)
        for dataset in (pairs.batch(5).map(function), pairs.map(function).batch(5)):
            outputs = dataset.get_single_element()
            assert keras.tree.map_structure(lambda value: value.numpy().tolist(), outputs) == whole


@pytest.mark.any_backend
def test_length_buckets(tokenizer):
    preprocessor = make(tokenizer, length_buckets=(11, 20, 61))
    inputs, labels, weights = make(tokenizer)(SOURCES, TARGETS)
    found = []
    for row, pair in enumerate(zip(SOURCES, TARGETS, strict=True)):
        # Both sequences have the length that the longer one needs.
        size = 1 + max(map(len, tokens(tokenizer, pair)))
        length = min(bucket for bucket in (11, 20, 61) if bucket >= size)
        cut = {name: value[row, :length] for name, value in inputs.items()}
        cut = (cut, labels[row, :length], weights[row, :length])
        assert as_lists(preprocessor(*pair)) == as_lists(cut)
        found.append(length)
    assert set(found) == {11, 20, 61}


@pytest.mark.any_backend
@pytest.mark.filterwarnings("ignore:.* pairs are cut")
def test_length_buckets_between_the_two_lengths(tokenizer):
    lengths = {"encoder_sequence_length": 31, "decoder_sequence_length": 5}
    preprocessor = make(tokenizer, **lengths, length_buckets=(4, 11))
    for row, length in ((1, 11), (2, 31)):
        inputs, labels, _ = preprocessor([SOURCES[row]], [TARGETS[row]])
        assert inputs["encoder_token_ids"].shape == (1, length)
        assert inputs["decoder_token_ids"].shape == labels.shape == (1, 5)


# === Generation ===


@pytest.mark.any_backend
def test_prompts(tokenizer, preprocessor):
    whole, _, _ = expected(tokenizer)
    for prompts in ([""] * 5, ["der", "", "die faule", "Vö", "der Hund"]):
        x = {"encoder_text": SOURCES, "decoder_text": prompts}
        inputs = as_lists(preprocessor.generate_preprocess(x, sequence_length=19))
        starts = [[tokenizer.start_token_id, *row] for row in tokens(tokenizer, prompts)]
        assert inputs == {
            **whole,
            "decoder_token_ids": padded(starts, 19, tokenizer.pad_token_id),
            "decoder_padding_mask": mask(starts, 19),
        }
        assert preprocessor.generate_postprocess(inputs) == prompts
    one = as_lists(preprocessor.generate_preprocess(SOURCES[0]))
    batch = as_lists(preprocessor.generate_preprocess([SOURCES[0]]))
    assert {name: [value] for name, value in one.items()} == batch
    assert preprocessor.generate_postprocess(one) == ""


@pytest.mark.any_backend
def test_lengths_of_generation(tokenizer):
    """The bucket holds the longest source. By default, targets are 50 tokens and prompts longer."""
    preprocessor = make(tokenizer, decoder_sequence_length=97, length_buckets=(8, 23, 61))

    def lengths(x, **arguments):
        inputs = preprocessor.generate_preprocess(x, **arguments)
        return [inputs[f"{side}_token_ids"].shape[-1] for side in ("encoder", "decoder")]

    assert lengths([SOURCES[1], SOURCES[3]]) == [23, 73]
    assert lengths(SOURCES[2]) == [61, 97]
    arguments = {"encoder_sequence_length": 17, "decoder_sequence_length": 13}
    assert lengths(SOURCES[3], **arguments) == [17, 13]
    assert lengths({"encoder_text": "a dog", "decoder_text": "der Hund"}) == [
        *[8, 58 + len(tokenizer("der Hund"))]
    ]


@pytest.mark.any_backend
def test_sources_and_prompts_that_just_fit(tokenizer):
    x = {"encoder_text": ["birds sing"], "decoder_text": ["Vögel"]}
    sources, prompts = (len(tokenizer(texts[0])) for texts in x.values())
    # The end token of the source, the start token of the prompt, and one new token.
    fits = {"encoder_sequence_length": sources + 1, "decoder_sequence_length": prompts + 2}
    preprocessor = make(tokenizer, **fits)
    preprocessor.generate_preprocess(x)
    for (name, length), number in zip(fits.items(), (sources, prompts), strict=True):
        with pytest.raises(ValueError, match=f"to {number - 1} tokens.*: {number} tokens in row 0"):
            preprocessor.generate_preprocess(x, **{name: length - 1})


@pytest.mark.any_backend
def test_texts_of_generated_tokens(tokenizer, preprocessor):
    start, end, pad = tokenizer.start_token_id, tokenizer.end_token_id, tokenizer.pad_token_id
    fox, dog = tokens(tokenizer, ["der Fuchs", "Hund"])
    rows = [
        [start, *fox, end, *dog],
        [start, *dog, pad, end, *fox],
        [start, end, *fox, *dog],
        [start, tokenizer.unk_token_id, *dog],
    ]
    length = max(map(len, rows)) + 2
    # A masked token is not read.
    x = {
        "decoder_token_ids": np.array(padded(rows, length, dog[0])),
        "decoder_padding_mask": np.array(mask(rows, length)),
    }
    texts = ["der Fuchs", "Hund", "", "\u2047  Hund"]
    tensors = {name: keras.ops.convert_to_tensor(value) for name, value in x.items()}
    # Two beams of two sources.
    beams = {name: value.reshape(2, 2, length) for name, value in x.items()}
    one = {name: value[0] for name, value in x.items()}
    for given, expected in ((tensors, texts), (beams, [texts[:2], texts[2:]]), (one, texts[0])):
        found = preprocessor.generate_postprocess(given)
        assert keras.tree.map_structure(str.strip, found) == expected


REFUSED = {
    "no targets": ((SOURCES,), r"needs sources and targets.*type list, and no y.*`generate`"),
    "wrong key": (({**PAIRS, "text": SOURCES},), r"with the keys .*'text'\], and no y"),
    "missing": ((SOURCES, [*TARGETS[:4], None]), r"`decoder_text` must hold .*None in row 4"),
    "fewer targets": ((SOURCES, TARGETS[:3]), r"5 in `encoder_text`, 3 in `decoder_text`"),
    "weights": ((SOURCES, TARGETS, [1.0] * 5), r"`sample_weight` must be `None`"),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("data, message", REFUSED.values(), ids=list(REFUSED))
def test_refusals(proto, data, message):
    with pytest.raises(ValueError, match=message):
        make(DietTransformerTokenizer(proto))(*data)
