"""`DietTransformerSeq2SeqLMPreprocessor`: pairs of texts to inputs and labels, and back."""

import json

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


def test_inputs_labels_and_weights(tokenizer, preprocessor):
    outputs = preprocessor(SOURCES, TARGETS)
    assert isinstance(outputs, tuple)
    assert as_lists(outputs) == expected(tokenizer)
    longest = max(map(len, tokens(tokenizer, SOURCES)))
    assert 10 < longest < 70, "no text of this test is cut"


@pytest.mark.any_backend
def test_long_texts_are_cut_before_the_end_token(tokenizer):
    outputs = make(tokenizer, encoder_sequence_length=7, decoder_sequence_length=5)(PAIRS)
    assert as_lists(outputs) == expected(tokenizer, 7, 5)


def form(name):
    """The pairs in another form."""
    if name == "dictionary":
        return (PAIRS,)
    if name == "element":
        return ((SOURCES, TARGETS),)
    if name == "arrays":
        return np.array(SOURCES), np.array(TARGETS, dtype=object)
    if name == "bytes":
        return [text.encode() for text in SOURCES], [text.encode() for text in TARGETS]
    tf = pytest.importorskip("tensorflow")
    return tf.constant(SOURCES), tf.constant(TARGETS)


@pytest.mark.parametrize("name", ["dictionary", "element", "arrays", "bytes", "tensors"])
def test_forms_of_pairs(preprocessor, name):
    assert as_lists(preprocessor(*form(name))) == as_lists(preprocessor(SOURCES, TARGETS))


@pytest.mark.any_backend
def test_one_pair(preprocessor):
    inputs, labels, weights = as_lists(preprocessor(SOURCES, TARGETS))
    first = ({name: value[0] for name, value in inputs.items()}, labels[0], weights[0])
    assert as_lists(preprocessor(SOURCES[0], TARGETS[0])) == first
    assert as_lists(preprocessor((SOURCES[0], TARGETS[0]))) == first


@pytest.mark.any_backend
def test_tf_data(shuffled_proto):
    tf = pytest.importorskip("tensorflow")
    pytest.importorskip("tensorflow_text")
    preprocessor = make(DietTransformerTokenizer(shuffled_proto), length_buckets=(69,))
    whole = as_lists(preprocessor(SOURCES, TARGETS))
    pairs = tf.data.Dataset.from_tensor_slices((SOURCES, TARGETS))
    function = tf.autograph.experimental.do_not_convert(lambda *pair: preprocessor(*pair))
    for dataset in (pairs.batch(5).map(function), pairs.map(function).batch(5)):
        outputs = dataset.get_single_element()
        assert keras.tree.map_structure(lambda value: value.numpy().tolist(), outputs) == whole


@pytest.mark.any_backend
def test_grain(preprocessor):
    grain = pytest.importorskip("grain")
    inputs, labels, weights = as_lists(preprocessor(SOURCES, TARGETS))
    elements = grain.MapDataset.source(list(zip(SOURCES, TARGETS, strict=True)))
    outputs = list(elements.map(preprocessor))
    assert [element[0]["encoder_token_ids"].tolist() for element in outputs] == inputs[
        "encoder_token_ids"
    ]
    assert [element[1].tolist() for element in outputs] == labels
    assert [element[2].tolist() for element in outputs] == weights


def test_length_buckets(tokenizer):
    preprocessor = make(tokenizer, length_buckets=(11, 17, 61))
    inputs, labels, weights = make(tokenizer)(SOURCES, TARGETS)
    found = []
    for row, pair in enumerate(zip(SOURCES, TARGETS, strict=True)):
        # Both sequences have the length that the longer one needs.
        size = 1 + max(map(len, tokens(tokenizer, pair)))
        length = min(bucket for bucket in (11, 17, 61) if bucket >= size)
        cut = {name: value[row, :length] for name, value in inputs.items()}
        cut = (cut, labels[row, :length], weights[row, :length])
        assert as_lists(preprocessor(*pair)) == as_lists(cut)
        found.append(length)
    assert set(found) == {11, 17, 61}


@pytest.mark.any_backend
def test_length_buckets_between_the_two_lengths(tokenizer):
    preprocessor = make(
        tokenizer, encoder_sequence_length=31, decoder_sequence_length=5, length_buckets=(4, 11)
    )
    inputs, labels, _ = preprocessor([SOURCES[1]], [TARGETS[1]])
    assert inputs["encoder_token_ids"].shape == (1, 11)
    assert inputs["decoder_token_ids"].shape == labels.shape == (1, 5)
    inputs, _, _ = preprocessor([SOURCES[2]], [TARGETS[2]])
    assert inputs["encoder_token_ids"].shape == (1, 31)


# === Generation ===


def test_inputs_of_generation(tokenizer, preprocessor):
    inputs = as_lists(preprocessor.generate_preprocess(SOURCES))
    whole, _, _ = expected(tokenizer)
    assert {name: inputs[name] for name in whole if "encoder" in name} == {
        name: value for name, value in whole.items() if "encoder" in name
    }
    starts = [[tokenizer.start_token_id]] * 5
    assert inputs["decoder_token_ids"] == padded(starts, 67, tokenizer.pad_token_id)
    assert inputs["decoder_padding_mask"] == mask(starts, 67)


@pytest.mark.any_backend
def test_prompts(tokenizer, preprocessor):
    prompts = ["der", "", "die faule", "Vö", "der Hund"]
    x = {"encoder_text": SOURCES, "decoder_text": prompts}
    inputs = as_lists(preprocessor.generate_preprocess(x, sequence_length=19))
    rows = [[tokenizer.start_token_id, *row] for row in tokens(tokenizer, prompts)]
    assert inputs["decoder_token_ids"] == padded(rows, 19, tokenizer.pad_token_id)
    assert inputs["decoder_padding_mask"] == mask(rows, 19)
    assert preprocessor.generate_postprocess(inputs) == prompts


@pytest.mark.any_backend
def test_one_source(preprocessor):
    batch = as_lists(preprocessor.generate_preprocess([SOURCES[0]]))
    single = as_lists(preprocessor.generate_preprocess(SOURCES[0]))
    assert {name: [value] for name, value in single.items()} == batch
    assert preprocessor.generate_postprocess(single) == ""


@pytest.mark.any_backend
def test_lengths_of_generation(tokenizer):
    """The bucket holds the longest source. The targets have room for all tokens."""
    preprocessor = make(tokenizer, length_buckets=(8, 23, 61))
    inputs = preprocessor.generate_preprocess([SOURCES[1], SOURCES[3]])
    assert inputs["encoder_token_ids"].shape == (2, 23)
    assert inputs["decoder_token_ids"].shape == (2, 67)
    inputs = preprocessor.generate_preprocess(
        SOURCES[3], encoder_sequence_length=17, decoder_sequence_length=13
    )
    assert inputs["encoder_token_ids"].shape == (17,)
    assert inputs["decoder_token_ids"].shape == (13,)


@pytest.mark.any_backend
def test_sources_and_prompts_that_just_fit(tokenizer):
    sources, prompts = (len(tokenizer(text)) for text in ("birds sing", "Vögel"))
    x = {"encoder_text": ["birds sing"], "decoder_text": ["Vögel"]}
    # The end token of the source, the start token of the prompt, and one new token.
    fits = {"encoder_sequence_length": sources + 1, "decoder_sequence_length": prompts + 2}
    preprocessor = make(tokenizer, **fits)
    preprocessor.generate_preprocess(x)
    for name, length in fits.items():
        with pytest.raises(
            ValueError, match=rf"must have at most {length - 2 - name.startswith('d')} t"
        ):
            preprocessor.generate_preprocess(x, **{name: length - 1})
    with pytest.raises(ValueError, match=r"`decoder_text`.*max_length=.*tokens in row 0"):
        preprocessor.generate_preprocess(x, sequence_length=prompts + 1)


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
    x = {
        # A masked token is not read.
        "decoder_token_ids": np.array(padded(rows, length, dog[0])),
        "decoder_padding_mask": np.array(mask(rows, length)),
    }
    texts = ["der Fuchs", "Hund", "", "\u2047  Hund"]
    actual = preprocessor.generate_postprocess(
        {name: keras.ops.convert_to_tensor(value) for name, value in x.items()}
    )
    assert [text.strip() for text in actual] == texts
    # Two beams of two sources.
    beams = {name: value.reshape(2, 2, length) for name, value in x.items()}
    actual = preprocessor.generate_postprocess(beams)
    assert [[text.strip() for text in each] for each in actual] == [texts[:2], texts[2:]]
    one = {name: value[0] for name, value in x.items()}
    assert preprocessor.generate_postprocess(one) == "der Fuchs"


# === Arguments and errors ===


@pytest.mark.any_backend
def test_every_argument_survives_the_configuration(shuffled_proto):
    preprocessor = make(
        DietTransformerTokenizer(shuffled_proto), length_buckets=(3, 69), name="pairs"
    )
    config = json.loads(json.dumps(preprocessor.get_config()))
    copy = DietTransformerSeq2SeqLMPreprocessor.from_config(config)
    copy.tokenizer.set_proto(shuffled_proto)
    assert copy.get_config() == preprocessor.get_config()
    assert (copy.encoder_sequence_length, copy.decoder_sequence_length) == (71, 67)
    assert (copy.length_buckets, copy.name) == ((3, 69), "pairs")
    assert type(copy.tokenizer) is DietTransformerTokenizer
    assert as_lists(copy(PAIRS)) == as_lists(preprocessor(PAIRS))


REFUSED = {
    "no targets": ((SOURCES,), r"needs sources and targets.*type list, and no y.*`generate`"),
    "no key": (({"encoder_text": SOURCES},), r"with the keys 'encoder_text', and no y"),
    "wrong key": (({**PAIRS, "text": SOURCES},), r"with the keys .*'text', and no y"),
    "both": ((PAIRS, TARGETS), r"`encoder_text` must be a string, .*a dict with the keys"),
    "numbers": ((SOURCES, [3, 1, 4, 1, 5]), r"`decoder_text` must hold strings.*3 in row 0"),
    "missing": ((SOURCES, [*TARGETS[:4], None]), r"`decoder_text` must hold .*None in row 4"),
    "fewer targets": ((SOURCES, TARGETS[:3]), r"batch of 5 in `enc.*, a batch of 3 in `decoder"),
    "one target": ((SOURCES, "Hund"), r"a batch of 5 in `encoder_text`, one string in `decoder"),
    "list of pairs": (
        (list(zip(SOURCES, TARGETS, strict=True)), TARGETS),
        r"`enc.*in tuples, in lists",
    ),
    "tuple": ((SOURCES, tuple(TARGETS)), r"`decoder_text` must be.*all targets into another one"),
    "empty batch": (([], []), "at least one example"),
    "empty source": ((["a fox", ""], ["x", "y"]), r"`encoder_text` must hold .*'' in row 1"),
    "blank source": ((" \n", "x"), r"`encoder_text` must hold texts that are not empty"),
    "weights": ((SOURCES, TARGETS, [1.0] * 5), r"`sample_weight` must be `None`"),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("case", REFUSED)
def test_refusals(proto, case):
    arguments, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        make(DietTransformerTokenizer(proto))(*arguments)


@pytest.mark.any_backend
def test_empty_targets_are_texts(proto):
    tokenizer = DietTransformerTokenizer(proto)
    _, labels, weights = as_lists(make(tokenizer)(["a fox"], [""]))
    assert labels[0][:2] == [tokenizer.end_token_id, tokenizer.pad_token_id]
    assert sum(weights[0]) == 1


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "x, message",
    [
        (["a fox", " "], r"`encoder_text` must hold texts that are not empty.*row 1"),
        ([], "at least one example"),
        (None, r"`encoder_text` must hold strings"),
        ((SOURCES, TARGETS), r"`encoder_text` must be a string, a list"),
        ({"encoder_text": SOURCES, "decoder_text": TARGETS[:4]}, "as many targets as sources"),
        (["a fox", "the fox " * 90], r"at most 70 tokens, because enc.*71.*\d+ tokens in row 1"),
    ],
    ids=str,
)
def test_refusals_of_generation(proto, x, message):
    with pytest.raises(ValueError, match=message):
        make(DietTransformerTokenizer(proto)).generate_preprocess(x)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"encoder_sequence_length": 1}, "`encoder_sequence_length` must be at least 2"),
        ({"decoder_sequence_length": 1}, "`decoder_sequence_length` must be at least 2"),
        ({"decoder_sequence_length": 2.0}, "`decoder_sequence_length` must be a positive integer"),
        ({"length_buckets": (5, 72)}, r"lengths from 2.* to 71.*\(5, 72\)"),
        ({"sequence_length": 7}, "sequence_length"),
    ],
    ids=str,
)
def test_arguments_are_checked(proto, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make(DietTransformerTokenizer(proto), **arguments)(PAIRS)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "arguments", [{"add_bos": True}, {"add_eos": True}, {"sequence_length": 9}]
)
def test_tokenizers_that_pack_are_refused(proto, arguments):
    (name,) = arguments
    with pytest.raises(ValueError, match=rf"must not add special tokens.*tokenizer\.{name}="):
        make(DietTransformerTokenizer(proto, **arguments))(PAIRS)


@pytest.mark.any_backend
def test_default_lengths_of_targets_have_room_for_prompts(tokenizer):
    preprocessor = DietTransformerSeq2SeqLMPreprocessor(tokenizer, 67, 97, length_buckets=(11, 31))
    for prompt in ("", "der Hund"):
        inputs = preprocessor.generate_preprocess(
            {"encoder_text": ["a dog"], "decoder_text": [prompt]}
        )
        expected = 11 + 50 + len(tokenizer(prompt))
        assert inputs["decoder_token_ids"].shape == (1, expected)
