"""The scores of whole batches, of KerasHub's BERT too."""

import keras_hub
import numpy as np
import pytest

from keras_diet import analysis
from keras_diet.layers.attention import plan
from keras_diet.models import DietBertBackbone
from tests.helpers import assert_close, once, to_numpy
from tests.models.tiny import SIZES, random_inputs, randomize_weights, tiny_backbone

ENCODINGS = {
    **{name: {"position_encoding": name} for name in ("diet_abs", "shaw", "sinusoidal")},
    "diet_abs_linformer": {"projection_dim": 7, "segment_encoding": "input"},
    "bert": {"position_encoding": "input", "segment_encoding": "input"},
    "dropout": {"dropout": 0.5},
    "blockwise": {"attention_implementation": "blockwise"},
}
ON_EACH_BACKEND = ("diet_abs", "shaw")


def softmax(scores):
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def encoder_probabilities(backbone, inputs):
    """The probabilities that the encoder returns, of shape (num_layers, B, num_heads, T, S)."""
    segment_ids = inputs["segment_ids"]
    x = backbone.token_embedding(inputs["token_ids"])
    if backbone.input_encoding is not None:
        at_input = backbone.segment_encoding == "input"
        x = backbone.input_encoding(x, segment_ids=segment_ids if at_input else None)
    _, probabilities = backbone.encoder(
        backbone.embeddings_layer_norm(x),
        segment_ids=segment_ids if backbone.segment_encoding == "per-head" else None,
        padding_mask=inputs["padding_mask"],
        return_attention_scores=True,
        training=False,
    )
    return np.stack([to_numpy(layer) for layer in probabilities])


@pytest.mark.parametrize(
    "name", [*ON_EACH_BACKEND, *once(*sorted(ENCODINGS.keys() - {*ON_EACH_BACKEND}))]
)
def test_softmax_gives_the_probabilities_that_the_encoder_returns(rng, monkeypatch, name):
    monkeypatch.setattr(plan, "BLOCK_SIZE", 4)
    backbone = randomize_weights(tiny_backbone(**ENCODINGS[name]))
    inputs = random_inputs(rng)
    scores = analysis.attention_scores(backbone, inputs)
    keys = backbone.projection_dim or 11
    assert scores.shape == (2, 2, 3, 11, keys)
    assert scores.dtype == "float32"
    if backbone.projection_dim is None:
        # Scores come before the mask: padded keys have some, and no probability.
        assert np.all(np.abs(scores) < 1e6)
        scores = np.where(inputs["padding_mask"][None, :, None, None, :], scores, -1e9)
    assert_close(softmax(scores), encoder_probabilities(backbone, inputs))


@pytest.mark.any_backend
def test_bert_of_kerashub_has_the_scores_of_its_copy(rng):
    sizes = {**SIZES, "dropout": 0.0}
    bert = randomize_weights(keras_hub.models.BertBackbone(**sizes))
    inputs = random_inputs(rng)
    copy = DietBertBackbone(**sizes, position_encoding="input", segment_encoding="input")
    copy.set_weights(bert.get_weights())
    scores = analysis.attention_scores(bert, inputs)
    assert_close(scores, analysis.attention_scores(copy, inputs), 1e-6)


@pytest.mark.any_backend
def test_half_precision(rng):
    backbone = randomize_weights(tiny_backbone())
    half = tiny_backbone(dtype="mixed_bfloat16")
    half.set_weights(backbone.get_weights())
    inputs = random_inputs(rng)
    scores = analysis.attention_scores(half, inputs)
    assert scores.dtype == "float32"
    assert_close(scores, analysis.attention_scores(backbone, inputs), 0.1)
