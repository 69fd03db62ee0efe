import keras
import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_diet import analysis, layers
from keras_diet.models import DietBertMaskedLM
from tests.helpers import assert_close, to_numpy
from tests.models.tiny import SIZES, randomize_weights, tiny_backbone


def backbone(position_encoding, **arguments):
    return randomize_weights(tiny_backbone(position_encoding=position_encoding, **arguments))


def scores_by_hand(positions, attention, keys=None, scale=5**-0.5):
    """`(P W_Q)(P W_K)^T / sqrt(d_h)` of each head."""
    keys = positions if keys is None else keys
    query = to_numpy(attention.query_dense.kernel)
    key = to_numpy(attention.key_dense.kernel)
    return np.stack(
        [scale * (positions @ query[:, head]) @ (keys @ key[:, head]).T for head in range(3)]
    )


def attentions(model):
    return [block.self_attention for block in model.encoder.transformer_layers]


# === Scores of a bias ===


@pytest.mark.parametrize("name", ["diet_abs", "diet_abs_input"])
def test_diet_abs_scores_are_the_products_of_its_embeddings(name):
    model = backbone(name, rank=7, sharing="none")
    scores = analysis.position_scores(model)
    assert scores.shape == (2, 3, 13, 13)
    assert scores.dtype == "float32"
    for layer, bias in enumerate(model.encoder.position_biases):
        query, key = to_numpy(bias.query_embedding), to_numpy(bias.key_embedding)
        for head in range(3):
            assert_close(scores[layer, head], query[:, head] @ key[:, head].T)


@pytest.mark.parametrize("sharing", ["none", "head-wise", "layer-wise"])
def test_diet_rel_scores_are_constant_along_diagonals(sharing):
    model = backbone("diet_rel", sharing=sharing)
    scores = analysis.position_scores(model, length=7)
    assert scores.shape == (2, 3, 7, 7)
    np.testing.assert_allclose(scores[..., 1:, 1:], scores[..., :-1, :-1])
    table = to_numpy(model.encoder.position_biases[0].relative_embedding)
    # Query 5, key 2: row 5 - 2 + n - 1 of the table.
    assert scores[0, 0, 5, 2] == pytest.approx(table[5 - 2 + 12, 0])
    assert np.array_equal(scores[0], scores[1]) == (sharing == "layer-wise")
    assert np.array_equal(scores[:, 0], scores[:, 1]) == (sharing == "head-wise")


@pytest.mark.parametrize("name", ["t5", "tupe_abs", "tupe_rel"])
def test_scores_of_other_biases(name):
    model = backbone(name, sharing="none")
    scores = analysis.position_scores(model, length=11)
    for layer, bias in enumerate(model.encoder.position_biases):
        assert_close(scores[layer], bias(np.zeros((1, 11, 1), dtype="float32"))[0])


@pytest.mark.any_backend
def test_scores_can_be_written_to():
    scores = analysis.position_scores(backbone("diet_abs"))
    scores[0] = 0
    assert np.any(scores[1])


@pytest.mark.any_backend
def test_diet_abs_lin_scores_are_of_projected_keys():
    model = backbone("diet_abs", projection_dim=5, segment_encoding="none", rank=7)
    scores = analysis.position_scores(model, length=11)
    assert scores.shape == (2, 3, 11, 5)
    (bias,) = model.encoder.position_biases
    query, key = to_numpy(bias.query_embedding)[:11], to_numpy(bias.key_embedding)
    assert_close(scores[1], np.einsum("thr,shr->hts", query, key))


@keras.saving.register_keras_serializable(package="keras_diet_tests")
class Sloped(keras.layers.Layer):
    """`-slope |i - j|` for all heads, of shape (1, 1, T, T)."""

    def build(self, inputs_shape):
        # Bias layers are called with hidden states.
        assert inputs_shape[-1] == SIZES["hidden_dim"]
        self.slope = self.add_weight(name="slope", shape=(), initializer="ones")

    def call(self, inputs):
        assert inputs.shape[-1] == SIZES["hidden_dim"]
        position = ops.cast(ops.arange(ops.shape(inputs)[1]), "float32")
        return -self.slope * ops.abs(position[:, None] - position)[None, None]


class OfContent(Sloped):
    """`Sloped` plus the sum of the key's features."""

    def call(self, inputs):
        return super().call(inputs) + ops.sum(inputs, axis=-1)[:, None, None]


@pytest.mark.any_backend
@pytest.mark.parametrize("sharing", ["layer-wise", "none"])
def test_a_custom_bias_layer(sharing):
    model = tiny_backbone(position_encoding=Sloped(), sharing=sharing)
    model.encoder.position_biases[-1].slope.assign(0.5)
    scores = analysis.position_scores(model, 4)
    assert scores.shape == (2, 3, 4, 4)
    np.testing.assert_allclose(scores[1, 2, 0], [0, -0.5, -1, -1.5])
    assert scores[0, 0, 3, 1] == (-1 if sharing == "layer-wise" else -2)


@pytest.mark.any_backend
def test_a_bias_layer_that_reads_its_inputs_is_refused():
    model = tiny_backbone(position_encoding=OfContent(name="content"))
    with pytest.raises(ValueError, match=r"reads its inputs.*'content'"):
        analysis.position_scores(model)


# === Positions at the input ===


def test_input_scores_of_the_position_embeddings_alone():
    model = backbone("input", segment_encoding="input")
    scores = analysis.position_scores(model)
    positions = to_numpy(model.input_encoding.position_embedding.position_embeddings)
    for layer, attention in enumerate(attentions(model)):
        assert_close(scores[layer], scores_by_hand(positions, attention))
    # Theorem 1: with positions at the input, the rank is at most the head size.
    assert np.all(analysis.numerical_rank(scores) == 5)


@pytest.mark.any_backend
def test_sinusoidal_scores():
    model = backbone("sinusoidal")
    positions = to_numpy(keras_hub.layers.SinePositionEncoding()(np.zeros((1, 7, 15), "float32")))
    scores = analysis.position_scores(model, 7)
    for layer, attention in enumerate(attentions(model)):
        assert_close(scores[layer], scores_by_hand(positions[0], attention))


@pytest.mark.any_backend
def test_keys_of_linformer_are_projected():
    model = backbone("input", projection_dim=4, segment_encoding="none")
    positions = to_numpy(model.input_encoding.position_embedding.position_embeddings)[:11]
    scores = analysis.position_scores(model, 11)
    assert scores.shape == (2, 3, 11, 4)
    for layer, attention in enumerate(attentions(model)):
        keys = to_numpy(attention.key_projection)[:, :11] @ positions
        assert_close(scores[layer], scores_by_hand(positions, attention, keys))


@pytest.mark.any_backend
def test_bert_of_kerashub_and_its_task():
    bert = randomize_weights(keras_hub.models.BertBackbone(**SIZES))
    scores = analysis.position_scores(bert)
    positions = to_numpy(bert.position_embedding.position_embeddings)
    for layer, block in enumerate(bert.transformer_layers):
        query, key = (
            to_numpy(dense.kernel)
            for dense in (
                block._self_attention_layer._query_dense,
                block._self_attention_layer._key_dense,
            )
        )
        query = np.einsum("td,dhk->htk", positions, query)
        key = np.einsum("sd,dhk->hsk", positions, key)
        assert_close(scores[layer], query @ key.swapaxes(1, 2) / np.sqrt(5))
    task = keras_hub.models.BertMaskedLM(bert)
    np.testing.assert_array_equal(analysis.position_scores(task), scores)


@pytest.mark.any_backend
def test_tasks_have_the_scores_of_their_backbones():
    model = backbone("diet_rel")
    task = DietBertMaskedLM(model, compile=False)
    np.testing.assert_array_equal(
        analysis.position_scores(task, 7), analysis.position_scores(model, 7)
    )


# === Encodings that users register ===


@pytest.fixture
def register(monkeypatch):
    registry = layers.transformer.position_encodings
    monkeypatch.setattr(registry, "POSITION_ENCODINGS", dict(registry.POSITION_ENCODINGS))
    return layers.register_position_encoding


@pytest.mark.any_backend
def test_a_registered_bias(register):
    register(
        "wide",
        layers.PositionEncoding(
            bias=lambda sizes, **kwargs: layers.AbsolutePositionBias(
                sizes.num_heads, sizes.max_length, 2, **kwargs
            ),
            sharing_modes=("layer-wise",),
        ),
    )
    model = backbone("wide")
    scores = analysis.position_scores(model)
    (bias,) = model.encoder.position_biases
    products = np.einsum("thr,shr->hts", *map(to_numpy, bias.weights))
    assert_close(scores, np.stack([products, products]))


class Ramp(keras.layers.Layer):
    """Embeddings of shape `(T, 1)`, equal for all features and without a batch axis."""

    def call(self, inputs):
        return ops.cast(ops.arange(ops.shape(inputs)[1]), "float32")[:, None]


@pytest.mark.any_backend
def test_a_registered_embedding_and_attention(register):
    register(
        "ramp",
        layers.PositionEncoding(
            embedding=lambda sizes, **kwargs: Ramp(**kwargs),
            attention=lambda sizes, **kwargs: layers.BiasedMultiHeadAttention(
                sizes.num_heads, sizes.head_dim, scale=0.25, **kwargs
            ),
        ),
    )
    model = backbone("ramp")
    scores = analysis.position_scores(model, 7)
    positions = np.repeat(np.arange(7.0), 15).reshape(7, 15)
    for layer, attention in enumerate(attentions(model)):
        assert_close(scores[layer], scores_by_hand(positions, attention, scale=0.25), 1e-4)


# === Models without positional scores ===


@pytest.mark.any_backend
def test_model_without_positions_is_refused():
    with pytest.raises(ValueError, match=r"without positions.*position_encoding='none'"):
        analysis.position_scores(tiny_backbone(position_encoding="none"))


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["shaw", "rotary", "transformer_xl"])
def test_scores_that_depend_on_the_query_are_refused(name):
    backbone = tiny_backbone(position_encoding=name, hidden_dim=18)
    with pytest.raises(ValueError, match=f"combines positions with queries.*'{name}'"):
        analysis.position_scores(backbone)


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["diet_abs", "input", "sinusoidal", "t5"])
@pytest.mark.parametrize(
    ("length", "message"),
    [(14, "length=14, max_sequence_length=13"), (0, "positive integer"), (2.5, "positive integer")],
)
def test_bad_lengths_are_refused(name, length, message):
    with pytest.raises(ValueError, match=message):
        analysis.position_scores(tiny_backbone(position_encoding=name), length=length)


@pytest.mark.any_backend
def test_other_models_are_refused():
    with pytest.raises(ValueError, match="Received: str"):
        analysis.position_scores("preset")
