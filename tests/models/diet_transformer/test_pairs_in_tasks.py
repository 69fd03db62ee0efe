"""Pairs of texts in `fit`, `evaluate` and `predict` of a task, in all forms of data."""

import keras
import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_diet.models import (
    DietTransformerBackbone,
    DietTransformerSeq2SeqLM,
    DietTransformerSeq2SeqLMPreprocessor,
    DietTransformerTokenizer,
)
from keras_diet.models.hub.backbone import HubBackbone
from keras_diet.models.hub.task import HubTask
from tests.models.diet_transformer.pairs import SOURCES, TARGETS
from tests.models.tiny import randomize_weights

PAIRS = {"encoder_text": SOURCES, "decoder_text": TARGETS}
NAMES = (
    *("encoder_token_ids", "encoder_padding_mask"),
    *("decoder_token_ids", "decoder_padding_mask"),
)


class PairBackbone(HubBackbone):
    """The mean of the source added to each token of the target."""

    def __init__(self, vocabulary_size=61, max_sequence_length=71):
        embedding = keras.layers.Embedding(vocabulary_size, 6)
        inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in NAMES}
        mask = ops.cast(inputs["encoder_padding_mask"], "float32")[..., None]
        source = ops.sum(embedding(inputs["encoder_token_ids"]) * mask, axis=1, keepdims=True)
        source = source / ops.sum(mask, axis=1, keepdims=True)
        super().__init__(inputs=inputs, outputs=embedding(inputs["decoder_token_ids"]) + source)
        self.vocabulary_size = vocabulary_size
        self.max_sequence_length = max_sequence_length


class PairTask(HubTask, keras_hub.models.Task):
    backbone_cls = PairBackbone
    preprocessor_cls = DietTransformerSeq2SeqLMPreprocessor

    def __init__(self, backbone, preprocessor):
        self.backbone = backbone
        self.preprocessor = preprocessor
        outputs = keras.layers.Dense(backbone.vocabulary_size)(backbone(backbone.input))
        super().__init__(inputs=backbone.input, outputs=outputs)


@pytest.fixture
def task(proto):
    return make(proto)


def make(proto, **arguments):
    lengths = {"encoder_sequence_length": 71, "decoder_sequence_length": 67}
    tokenizer = DietTransformerTokenizer(proto)
    task = PairTask(
        PairBackbone(), DietTransformerSeq2SeqLMPreprocessor(tokenizer, **lengths, **arguments)
    )
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
    task.compile("sgd", loss)
    return randomize_weights(task)


def loss(task, *data, **arguments):
    return task.evaluate(*data, verbose=0, **arguments)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return SOURCES, TARGETS


def dataset(name):
    """One batch of all pairs."""
    if name == "PyDataset":
        return Batches()
    if name == "generator":
        return iter([(np.array(SOURCES), np.array(TARGETS))])
    if name == "DataLoader":
        data = pytest.importorskip("torch").utils.data
        return data.DataLoader(list(zip(SOURCES, TARGETS, strict=True)), batch_size=5)
    tf = pytest.importorskip("tensorflow")
    pytest.importorskip("tensorflow_text")
    if name == "tf.data of dictionaries":
        return tf.data.Dataset.from_tensor_slices(PAIRS).batch(5)
    return tf.data.Dataset.from_tensor_slices((SOURCES, TARGETS)).batch(5)


def test_the_loss_is_that_of_the_labels(task):
    """The mean over all labels with end tokens, and without padding."""
    inputs, labels, weights = task.preprocessor(SOURCES, TARGETS)
    logits = ops.convert_to_numpy(task(inputs)).astype("float64")
    logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    labels, weights = ops.convert_to_numpy(labels), ops.convert_to_numpy(weights).astype(bool)
    expected = -np.take_along_axis(logits, labels[..., None], axis=-1)[..., 0][weights].mean()
    assert loss(task, SOURCES, TARGETS) == pytest.approx(expected, rel=1e-5)
    assert loss(task, PAIRS) == pytest.approx(expected, rel=1e-5)
    # Another target of each source has another loss.
    assert abs(loss(task, SOURCES, TARGETS[::-1]) - expected) > 1e-3


@pytest.mark.parametrize(
    "name",
    [
        *("PyDataset", "generator", "DataLoader", "tf.data"),
        pytest.param("tf.data of dictionaries", marks=pytest.mark.any_backend("tensorflow")),
    ],
)
def test_datasets_of_pairs(task, name):
    expected = loss(task, SOURCES, TARGETS)
    assert loss(task, dataset(name), steps=1) == pytest.approx(expected, rel=1e-5)


def test_training(task):
    history = task.fit(
        SOURCES, TARGETS, batch_size=2, epochs=5, validation_data=(SOURCES, TARGETS), verbose=0
    ).history
    assert history["val_loss"][-1] < history["val_loss"][0]
    assert task.predict(PAIRS, verbose=0).shape == (5, 67, 61)
    one = {name: texts[1] for name, texts in PAIRS.items()}
    np.testing.assert_allclose(
        task.predict(one, verbose=0)[0], task.predict(PAIRS, verbose=0)[1], 1e-4, 1e-5
    )
    task.fit(PAIRS, validation_split=0.4, verbose=0)


@pytest.mark.usefixtures("compiled_steps")
def test_length_buckets(proto, task):
    bucketed = make(proto, length_buckets=(11, 17, 35))
    bucketed.set_weights(task.get_weights())
    for batch_size in (1, 5):
        expected = loss(task, SOURCES, TARGETS, batch_size=batch_size)
        actual = loss(bucketed, SOURCES, TARGETS, batch_size=batch_size)
        assert actual == pytest.approx(expected, rel=1e-5)
    history = bucketed.fit(SOURCES, TARGETS, batch_size=1, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "data, message",
    [
        ((SOURCES,), "needs sources and targets"),
        (((SOURCES, TARGETS),), "x of type tuple, and no y. Pass sources as `x` and targets as"),
        ((SOURCES, TARGETS[:4]), "as many targets as sources"),
        ((SOURCES, [1, 2, 3, 4, 5]), "`decoder_text` must hold strings"),
        (("the fox", "der Fuchs"), "a list of texts. Received: one text"),
        ((["", *SOURCES[1:]], TARGETS), "`encoder_text` must hold texts that are not empty"),
        ((iter([(SOURCES, TARGETS[:2])]),), "as many targets as sources"),
        ((iter([SOURCES]),), "needs sources and targets"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_refusals(task, data, message):
    with pytest.raises(ValueError, match=message):
        task.fit(*data, verbose=0)


@pytest.mark.any_backend
def test_weights_are_refused(task):
    """The preprocessor makes them, one for each token."""
    for data in ((SOURCES, TARGETS), (PAIRS, None)):
        with pytest.raises(ValueError, match="`y` and `sample_weight` must be `None`"):
            task.fit(*data, sample_weight=np.ones(5), verbose=0)
    with pytest.raises(ValueError, match="`y` and `sample_weight` must be `None`"):
        task.fit(iter([(SOURCES, TARGETS, np.ones(5))]), verbose=0)


@pytest.mark.any_backend
def test_a_preprocessor_may_be_set_later():
    """Keras's layers are modules on PyTorch, which calls `train` of all their parts."""
    texts = ["the quick fox", "der schnelle Fuchs", "a dog"]
    tokenizer = DietTransformerTokenizer.from_texts(texts, 30)
    preprocessor = DietTransformerSeq2SeqLMPreprocessor(tokenizer, 12, 12)
    translator = DietTransformerSeq2SeqLM(
        DietTransformerBackbone(30, 1, 2, 8, 16, max_sequence_length=12)
    )
    translator.preprocessor = preprocessor
    history = translator.fit(texts, texts[::-1], verbose=0).history
    assert len(history["loss"]) == 1
