"""What a model has learned about positions and segments."""

import keras
import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_diet import analysis
from keras_diet.models import DietBertMaskedLM
from tests.helpers import assert_close, once, to_numpy
from tests.layers.diet_encoders import Slopes
from tests.models.tiny import SIZES, randomize_weights, tiny_backbone


def backbone(position_encoding, **arguments):
    return randomize_weights(tiny_backbone(position_encoding=position_encoding, **arguments))


def scores_by_hand(positions, attention, keys):
    """`(P W_Q)(P W_K)^T / sqrt(d_h)` of each head."""
    query = to_numpy(attention.query_dense.kernel)
    key = to_numpy(attention.key_dense.kernel)
    return np.stack(
        [(positions @ query[:, head]) @ (keys @ key[:, head]).T / np.sqrt(5) for head in range(3)]
    )


# === Scores of a bias ===


NOT_SHARED = {"sharing": "none", "rank": 7}
PROJECTED = {"projection_dim": 5, "segment_encoding": "none", "rank": 7}


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("diet_abs", NOT_SHARED),
        *once(("diet_abs_input", NOT_SHARED), ("tupe_rel", {"sharing": "none"})),
        *once(*(("diet_rel", {"sharing": name}) for name in ("head-wise", "layer-wise"))),
        *once(("diet_abs", PROJECTED)),
    ],
    ids=str,
)
def test_scores_of_a_bias(name, arguments):
    """Query 5 and key 2 are in row 5 and column 2, in each layer and head."""
    model = backbone(name, **arguments)
    scores = analysis.position_scores(model, length=11)
    biases = model.encoder.position_biases
    num_keys = arguments.get("projection_dim", 11)
    assert scores.shape == (2, 3, 11, num_keys)
    assert scores.dtype == "float32"
    query, key = np.zeros((1, 11, 1), "float32"), np.zeros((1, num_keys, 1), "float32")
    for layer in range(2):
        bias = to_numpy(biases[layer % len(biases)](query, key))[0]
        assert_close(scores[layer], np.broadcast_to(bias, scores.shape[1:]))
    assert np.array_equal(scores[0], scores[1]) == (len(biases) == 1)
    is_shared = arguments.get("sharing") == "head-wise"
    assert np.array_equal(scores[:, 0], scores[:, 1]) == is_shared


@keras.saving.register_keras_serializable("keras_diet_tests")
class SlopesOfStates(Slopes):
    def build(self, inputs_shape):
        assert inputs_shape[-1] == SIZES["hidden_dim"], "bias layers are called with hidden states"
        super().build(inputs_shape)


class OfContent(Slopes):
    def call(self, inputs):
        return super().call(inputs) + ops.sum(inputs, axis=-1)[:, None, None]


@pytest.mark.any_backend
@pytest.mark.parametrize("sharing", ["layer-wise", "none"])
def test_a_custom_bias_layer(sharing):
    model = tiny_backbone(position_encoding=SlopesOfStates(3), sharing=sharing)
    for number, bias in enumerate(model.encoder.position_biases, 1):
        bias.slopes.assign([0.5 * number, 2, 3])
    scores = analysis.position_scores(model, 4)
    assert scores.shape == (2, 3, 4, 4)
    np.testing.assert_allclose(scores[0, 2, 0], [0, 3, 6, 9])
    assert scores[1, 0, 3, 1] == (1 if sharing == "layer-wise" else 2)


# === Positions at the input ===


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("input", {"segment_encoding": "input"}),
        *once(("sinusoidal", {}), ("input", {"projection_dim": 4, "segment_encoding": "none"})),
    ],
    ids=str,
)
def test_scores_of_positions_at_the_input_alone(name, arguments):
    model = backbone(name, **arguments)
    if name == "sinusoidal":
        layer = keras_hub.layers.SinePositionEncoding()
        positions = to_numpy(layer(np.zeros((1, 11, 15), "float32")))[0]
    else:
        positions = to_numpy(model.input_encoding.position_embedding.position_embeddings)[:11]
    scores = analysis.position_scores(model, 11)
    for layer, block in enumerate(model.encoder.transformer_layers):
        attention = block.self_attention
        keys = positions
        if "projection_dim" in arguments:
            keys = to_numpy(attention.key_projection)[:, :11] @ positions
        assert_close(scores[layer], scores_by_hand(positions, attention, keys))


# === Segments ===


def with_segments(rng, **arguments):
    """A model, and the segment scores that it was given."""
    backbone = randomize_weights(tiny_backbone(num_segments=5, **arguments))
    expected = rng.normal(size=(2, 3, 5, 5)).astype("float32")
    for bias, values in zip(backbone.encoder.segment_biases, expected, strict=True):
        bias.segment_embedding.assign(values)
    return backbone, expected


def test_segment_scores_of_each_layer(rng):
    backbone, expected = with_segments(rng)
    np.testing.assert_array_equal(analysis.segment_scores(backbone), expected)


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["diet_abs", "diet_rel", "input"])
def test_positions_and_segments_add_up(rng, name):
    backbone, segments = with_segments(rng, position_encoding=name)
    segment_ids = [0, 0, 3, 3, 1, 4, 4]
    scores = analysis.position_and_segment_scores(backbone, segment_ids)
    positions = analysis.position_scores(backbone, 7)
    assert scores.shape == (2, 3, 7, 7)
    of_segments = segments[:, :, segment_ids][..., segment_ids]
    np.testing.assert_allclose(scores, positions + of_segments, rtol=1e-5)


# === Similarity of positions at the input ===


@pytest.mark.any_backend
def test_similarities_of_embeddings_set_by_hand():
    backbone = tiny_backbone(position_encoding="input", max_sequence_length=5)
    embeddings = np.zeros((5, 15))
    embeddings[:4, :2] = [[3, 0], [0, 0.5], [-2, 0], [1, 1]]
    backbone.input_encoding.position_embedding.position_embeddings.assign(embeddings)
    diagonal = np.sqrt(0.5)
    expected = [
        [1, 0, -1, diagonal, 0],
        [0, 1, 0, diagonal, 0],
        [-1, 0, 1, -diagonal, 0],
        [diagonal, diagonal, -diagonal, 1, 0],
        [0, 0, 0, 0, 0],
    ]
    assert_close(analysis.position_similarity(backbone), np.float32(expected), 1e-6)


# === A `DietEncoder`, a task, and BERT of KerasHub ===


@pytest.mark.any_backend
def test_an_encoder_and_a_task():
    model = backbone("diet_rel")
    for function, arguments in (
        (analysis.position_scores, (7,)),
        (analysis.segment_scores, ()),
        (analysis.position_and_segment_scores, ([0, 0, 1, 1, 1],)),
    ):
        for other in (model.encoder, DietBertMaskedLM(model, compile=False)):
            expected = function(model, *arguments)
            np.testing.assert_array_equal(function(other, *arguments), expected)


@pytest.mark.any_backend
def test_bert_of_kerashub():
    bert = randomize_weights(keras_hub.models.BertBackbone(**SIZES))
    before = bert.get_weights()
    copy = tiny_backbone(position_encoding="input", segment_encoding="input")
    copy.set_weights(before)
    scores = analysis.position_scores(keras_hub.models.BertMaskedLM(bert))
    assert_close(scores, analysis.position_scores(copy))
    for weight, value in zip(bert.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        ("position_scores", {"position_encoding": "none"}, "no positions.*'none'"),
        ("position_scores", {"position_encoding": "shaw"}, "combines them with queries.*'shaw'"),
        ("position_scores", {"position_encoding": OfContent(3, name="content")}, "'content'"),
        ("position_similarity", {"position_encoding": "diet_abs"}, "position_encoding='diet_abs'"),
    ],
)
def test_models_without_such_scores(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        getattr(analysis, function)(tiny_backbone(**arguments))


@pytest.mark.any_backend
def test_refused_arguments():
    with pytest.raises(ValueError, match="length=14, max_length=13"):
        analysis.position_scores(tiny_backbone(), length=14)
    with pytest.raises(ValueError, match="must not be negative"):
        analysis.position_and_segment_scores(tiny_backbone(), [0, -1])
