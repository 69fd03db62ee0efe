"""The scores of whole batches, of KerasHub's BERT too."""

import keras_hub
import numpy as np
import pytest

from keras_diet import analysis
from keras_diet.models import DietBertBackbone
from tests.helpers import assert_close, to_numpy
from tests.models.tiny import SIZES, random_inputs, randomize_weights, tiny_backbone

ENCODINGS = {
    **{name: {"position_encoding": name} for name in ("diet_abs", "diet_rel", "tupe_rel", "shaw")},
    "sinusoidal": {"position_encoding": "sinusoidal"},
    "diet_abs_linformer": {"projection_dim": 7, "segment_encoding": "input"},
    "bert": {"position_encoding": "input", "segment_encoding": "input"},
    "dropout": {"dropout": 0.5},
}


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


@pytest.mark.parametrize("name", ENCODINGS)
def test_softmax_gives_the_probabilities_that_the_encoder_returns(rng, name):
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


def test_one_layer_by_hand(rng):
    backbone = randomize_weights(tiny_backbone(num_layers=1, rank=7))
    inputs = random_inputs(rng)
    x = to_numpy(backbone.embeddings_layer_norm(backbone.token_embedding(inputs["token_ids"])))
    attention = backbone.encoder.transformer_layers[0].self_attention
    query_kernel, query_bias = map(to_numpy, attention.query_dense.weights)
    key_kernel, key_bias = map(to_numpy, attention.key_dense.weights)
    position, segment = backbone.encoder.position_biases[0], backbone.encoder.segment_biases[0]
    segment_embedding = to_numpy(segment.segment_embedding)
    scores = analysis.attention_scores(backbone, inputs)
    for b in range(2):
        segment_ids = inputs["segment_ids"][b]
        for head in range(3):
            query = x[b] @ query_kernel[:, head] + query_bias[head]
            key = x[b] @ key_kernel[:, head] + key_bias[head]
            position_query = to_numpy(position.query_embedding)[:11, head]
            position_key = to_numpy(position.key_embedding)[:11, head]
            expected = (
                query @ key.T / np.sqrt(5)
                + position_query @ position_key.T
                + segment_embedding[head][segment_ids[:, None], segment_ids]
            )
            assert_close(scores[0, b, head], expected)


@pytest.mark.any_backend
def test_theorem_1(rng):
    """Rank at most `d_h` with positions at the input, `d_h + d_p` with DIET-ABS."""
    inputs = random_inputs(rng, batch_size=1, length=13)
    ranks = {}
    for name, rank in (("input", None), ("diet_abs", 3)):
        model = tiny_backbone(position_encoding=name, segment_encoding="none", rank=rank)
        scores = analysis.attention_scores(randomize_weights(model), inputs)
        ranks[name] = analysis.numerical_rank(scores)
    np.testing.assert_array_equal(ranks["input"], np.full((2, 1, 3), 5))
    np.testing.assert_array_equal(ranks["diet_abs"], np.full((2, 1, 3), 5 + 3))


def test_bert_of_kerashub_by_hand_and_as_its_copy(rng):
    sizes = {**SIZES, "dropout": 0.0}
    bert = randomize_weights(keras_hub.models.BertBackbone(**sizes))
    inputs = random_inputs(rng)
    scores = analysis.attention_scores(bert, inputs)

    length = inputs["token_ids"].shape[1]
    x = to_numpy(bert.token_embedding.embeddings)[inputs["token_ids"]]
    x = x + to_numpy(bert.position_embedding.position_embeddings)[:length]
    x = x + to_numpy(bert.segment_embedding.embeddings)[inputs["segment_ids"]]
    x = to_numpy(bert.embeddings_layer_norm(x))
    attention = bert.transformer_layers[0]._self_attention_layer
    query_kernel, query_bias = map(to_numpy, attention._query_dense.weights)
    key_kernel, key_bias = map(to_numpy, attention._key_dense.weights)
    query = np.einsum("btd,dhk->bhtk", x, query_kernel) + query_bias[:, None]
    key = np.einsum("bsd,dhk->bhsk", x, key_kernel) + key_bias[:, None]
    assert_close(scores[0], query @ key.swapaxes(-1, -2) / np.sqrt(5))

    copy = DietBertBackbone(**sizes, position_encoding="input", segment_encoding="input")
    copy.set_weights(bert.get_weights())
    assert_close(scores, analysis.attention_scores(copy, inputs), 1e-6)


@pytest.mark.any_backend
def test_the_model_is_not_changed(rng):
    backbone = randomize_weights(tiny_backbone())
    inputs = random_inputs(rng)
    before = to_numpy(backbone(inputs)["sequence_output"])
    attentions = [block.self_attention for block in backbone.encoder.transformer_layers]
    attributes = [set(vars(attention)) for attention in attentions]
    analysis.attention_scores(backbone, inputs)
    assert [set(vars(attention)) for attention in attentions] == attributes
    assert_close(backbone(inputs)["sequence_output"], before, 1e-6)


def test_long_sequences_are_not_computed_in_blocks(rng):
    backbone = randomize_weights(tiny_backbone(attention_implementation="blockwise"))
    full = tiny_backbone(attention_implementation="full")
    full.set_weights(backbone.get_weights())
    inputs = random_inputs(rng)
    assert_close(
        analysis.attention_scores(backbone, inputs), analysis.attention_scores(full, inputs)
    )


def test_half_precision(rng):
    backbone = randomize_weights(tiny_backbone())
    half = tiny_backbone(dtype="mixed_bfloat16")
    half.set_weights(backbone.get_weights())
    inputs = random_inputs(rng)
    scores = analysis.attention_scores(half, inputs)
    assert scores.dtype == "float32"
    assert_close(scores, analysis.attention_scores(backbone, inputs), 0.1)
