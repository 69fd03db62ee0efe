import keras
import numpy as np
import pytest

from keras_diet import analysis, models


def backbone(position_encoding, **kwargs):
    keras.utils.set_random_seed(3)
    return models.DietBertBackbone(
        vocabulary_size=13,
        num_layers=2,
        num_heads=3,
        hidden_dim=15,
        intermediate_dim=7,
        max_sequence_length=11,
        position_encoding=position_encoding,
        **kwargs,
    )


def to_numpy(variable):
    return keras.ops.convert_to_numpy(variable)


def test_diet_abs_scores_are_the_products_of_its_embeddings():
    model = backbone("diet_abs", rank=5, sharing="none")
    scores = analysis.position_scores(model)
    assert scores.shape == (2, 3, 11, 11)
    for layer, bias in enumerate(model.encoder.position_biases):
        query, key = to_numpy(bias.query_embedding), to_numpy(bias.key_embedding)
        for head in range(3):
            expected = query[:, head] @ key[:, head].T
            np.testing.assert_allclose(scores[layer, head], expected, atol=1e-6)


@pytest.mark.parametrize("sharing", ["none", "head-wise", "layer-wise"])
def test_diet_rel_scores_are_constant_along_diagonals(sharing):
    model = backbone("diet_rel", sharing=sharing)
    scores = analysis.position_scores(model, length=7)
    np.testing.assert_allclose(scores[..., 1:, 1:], scores[..., :-1, :-1])
    table = to_numpy(model.encoder.position_biases[0].relative_embedding)
    # Query 5, key 2: row 5 - 2 + n - 1 of the table.
    np.testing.assert_allclose(scores[0, 0, 5, 2], table[5 - 2 + 10, 0], atol=1e-6)
    assert np.array_equal(scores[0], scores[1]) == (sharing == "layer-wise")
    assert np.array_equal(scores[:, 0], scores[:, 1]) == (sharing == "head-wise")


def test_input_scores_are_those_of_the_position_embeddings_alone():
    model = backbone("input", segment_encoding="input")
    scores = analysis.position_scores(model)
    positions = to_numpy(model.input_encoding.position_embedding.position_embeddings)
    for layer, block in enumerate(model.encoder.transformer_layers):
        query = to_numpy(block.self_attention.query_dense.kernel)
        key = to_numpy(block.self_attention.key_dense.kernel)
        for head in range(3):
            expected = (positions @ query[:, head]) @ (positions @ key[:, head]).T / np.sqrt(5)
            np.testing.assert_allclose(scores[layer, head], expected, atol=1e-6)
            # Theorem 1: at the input the rank is at most the head size.
            assert np.linalg.matrix_rank(scores[layer, head], tol=1e-6) <= 5


def test_model_without_positions_is_refused():
    with pytest.raises(ValueError, match="position_encoding='none'"):
        analysis.position_scores(backbone("none"))


def test_too_many_positions_are_refused():
    with pytest.raises(ValueError, match="max_length"):
        analysis.position_scores(backbone("diet_abs"), length=12)


def test_plot_has_a_map_for_each_layer_and_head():
    scores = np.random.default_rng(0).normal(size=(3, 5, 7, 7))
    figure = analysis.plot_position_scores(scores, layers=[0, 2], heads=[1, 3, 4])
    maps = [axis for axis in figure.axes if axis.images]
    assert [axis.get_title() for axis in maps[:3]] == [
        f"layer 0, head {head}" for head in (1, 3, 4)
    ]
    assert len(maps) == 6
    np.testing.assert_array_equal(maps[3].images[0].get_array(), scores[2, 1])
