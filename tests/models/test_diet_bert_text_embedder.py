"""`DietBertTextEmbedder`: pooling, what padding does not change, similarities, training."""

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet.models import (
    DietBertBackbone,
    DietBertTextEmbedder,
    DietBertTextEmbedderPreprocessor,
    DietBertTokenizer,
)
from tests.helpers import assert_close, to_numpy
from tests.models.tiny import (
    SIZES,
    TEXTS,
    VOCABULARY,
    random_inputs,
    randomize_weights,
    tiny_backbone,
)

POOLING = ["mean", "cls", "max"]


def tiny_embedder(with_preprocessor=False, backbone=None, **arguments):
    preprocessor = None
    if with_preprocessor:
        preprocessor = DietBertTextEmbedderPreprocessor(
            DietBertTokenizer(VOCABULARY), sequence_length=13
        )
    backbone = tiny_backbone(num_layers=1) if backbone is None else backbone
    return randomize_weights(DietBertTextEmbedder(backbone, preprocessor, **arguments))


@pytest.mark.parametrize(
    ("pooling_mode", "normalize"), [("mean", True), ("mean", False), ("cls", True), ("max", False)]
)
def test_embeddings_are_those_of_the_equations(rng, pooling_mode, normalize):
    embedder = tiny_embedder(pooling_mode=pooling_mode, normalize=normalize)
    inputs = random_inputs(rng, batch_size=3)
    hidden = to_numpy(embedder.backbone(inputs)["sequence_output"]).astype("float64")
    pool = {"mean": lambda h: h.mean(0), "cls": lambda h: h[0], "max": lambda h: h.max(0)}
    expected = []
    for h, mask in zip(hidden, inputs["padding_mask"], strict=True):
        pooled = pool[pooling_mode](h[mask == 1])
        expected.append(pooled / np.linalg.norm(pooled) if normalize else pooled)
    assert_close(embedder(inputs), np.array(expected))
    assert len(embedder.weights) == len(embedder.backbone.weights)


@pytest.mark.any_backend
@pytest.mark.parametrize("pooling_mode", POOLING)
def test_with_input_encodings_it_is_bert(rng, pooling_mode):
    sizes = {**SIZES, "num_layers": 1, "dropout": 0.0}
    bert = keras_hub.models.BertTextEmbedder(
        randomize_weights(keras_hub.models.BertBackbone(**sizes)), pooling_mode=pooling_mode
    )
    backbone = DietBertBackbone(**sizes, position_encoding="input", segment_encoding="input")
    ours = tiny_embedder(backbone=backbone, pooling_mode=pooling_mode)
    ours.set_weights(bert.get_weights())
    inputs = random_inputs(rng)
    assert_close(ours(inputs), bert(inputs))


@pytest.mark.parametrize("pooling_mode", POOLING)
def test_padding_changes_nothing(pooling_mode):
    embedder = tiny_embedder(with_preprocessor=True, pooling_mode=pooling_mode)
    long = embedder.encode_text("the fox sleep", verbose=0)
    embedder.preprocessor.sequence_length = 7
    assert_close(embedder.encode_text("the fox sleep", verbose=0), long)


@pytest.mark.any_backend
def test_texts_documents_and_similarities():
    embedder = tiny_embedder(with_preprocessor=True)
    query = embedder.encode_text("the fox sleep", verbose=0)
    documents = embedder.encode_documents(["the fox sleep", *TEXTS[:2]], verbose=0)
    assert query.shape == (1, 15)
    assert documents.shape == (3, 15)
    similarities = to_numpy(embedder.similarity(query, documents))
    assert_close(similarities, query @ documents.T)
    assert similarities[0, 0] == pytest.approx(1, abs=1e-5)
    assert np.abs(similarities[0, 1:]).max() < 0.999


@pytest.mark.any_backend
def test_one_text_or_one_pair():
    embedder = tiny_embedder(with_preprocessor=True)
    texts = TEXTS[:3]
    expected = embedder.predict(texts, verbose=0)
    assert np.abs(expected[1] - expected[0]).max() > 0.01
    for one in (texts[1], texts[1].encode(), np.str_(texts[1]), [texts[1]]):
        assert_close(embedder.encode_text(one, verbose=0), expected[1:2])
        assert_close(embedder.encode_documents(one, verbose=0), expected[1:2])
    assert_close(embedder.encode_text(np.array(texts), verbose=0), expected)
    pairs = embedder.predict((texts, TEXTS[2:5]), verbose=0)
    assert_close(embedder.encode_text((texts[1], TEXTS[3]), verbose=0), pairs[1:2])


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "`x`"),
        (7, "`x`"),
        ([], "an empty batch"),
        (["the fox", None], "None in row 1"),
        (["the fox", float("nan")], "nan in row 1"),
        ([["the", "fox"]], "lists of lists"),
        ({"text": TEXTS}, "`x` must"),
        ((TEXTS[:2], TEXTS[:3]), "same batch size"),
    ],
    ids=str,
)
def test_texts_that_are_refused(text, message):
    embedder = tiny_embedder(with_preprocessor=True)
    for call in (embedder.encode_text, embedder.encode_documents, embedder.predict):
        with pytest.raises(ValueError, match=message):
            call(text, verbose=0)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision(rng, dtype):
    """Sums over the tokens are in float32: 13 times 10,000 is infinite in float16."""
    backbone = tiny_backbone(num_layers=1, dtype=dtype)
    embedder = tiny_embedder(backbone=backbone)
    last_norm = backbone.encoder.transformer_layers[-1].feedforward_layer_norm
    last_norm.gamma.assign(10_000 + 0 * to_numpy(last_norm.gamma))
    outputs = embedder(random_inputs(rng))
    assert keras.backend.standardize_dtype(outputs.dtype) == backbone.compute_dtype
    assert_close(np.linalg.norm(to_numpy(outputs), axis=-1), np.ones(2), 1e-2)


@pytest.mark.any_backend
def test_fit_learns_from_raw_text():
    embedder = tiny_embedder(with_preprocessor=True)
    embedder.compile(keras.optimizers.Adam(0.02), "cosine_similarity")
    targets = np.eye(4, 15, dtype="float32")
    history = embedder.fit(TEXTS[:4], targets, batch_size=4, epochs=20, verbose=0).history
    assert history["loss"][-1] < min(-0.8, history["loss"][0])


@pytest.mark.any_backend
def test_configuration():
    embedder = tiny_embedder(pooling_mode="max", normalize=False, name="vectors", trainable=False)
    copy = DietBertTextEmbedder.from_config(embedder.get_config())
    assert copy.get_config() == embedder.get_config()
    assert (copy.pooling_mode, copy.normalize, copy.name) == ("max", False, "vectors")
    assert embedder.trainable_weights == []


@pytest.mark.parametrize("pooling_mode", ["mean", "max"])
def test_nothing_but_padding_is_zero(rng, pooling_mode):
    inputs = random_inputs(rng)
    inputs["padding_mask"][0] = 0
    embeddings = to_numpy(tiny_embedder(pooling_mode=pooling_mode)(inputs))
    np.testing.assert_array_equal(embeddings[0], 0)
    assert_close(np.linalg.norm(embeddings[1]), 1.0)


@pytest.mark.any_backend
def test_unknown_pooling_is_refused():
    with pytest.raises(ValueError, match="`pooling_mode` must be one of 'mean', 'cls', 'max'"):
        tiny_embedder(pooling_mode="sum")
