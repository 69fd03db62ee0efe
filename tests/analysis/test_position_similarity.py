import keras_hub
import numpy as np
import pytest

from keras_diet import analysis
from tests.helpers import assert_close, to_numpy
from tests.models.tiny import SIZES, randomize_weights, tiny_backbone

pytestmark = pytest.mark.any_backend


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


def test_all_models_with_positions_at_the_input():
    bert = randomize_weights(keras_hub.models.BertBackbone(**SIZES))
    learned = np.array(bert.position_embedding.get_weights()[0])
    both = tiny_backbone(position_encoding="diet_abs_input")
    both.input_encoding.position_embedding.set_weights([learned])
    sines = tiny_backbone(position_encoding="sinusoidal")
    layer = keras_hub.layers.SinePositionEncoding()
    embeddings = {
        "bert": (bert, learned),
        "task": (keras_hub.models.BertMaskedLM(bert), learned),
        "both": (both, learned),
        "sines": (sines, to_numpy(layer(np.zeros((1, 13, 15), dtype="float32")))[0]),
    }
    for model, positions in embeddings.values():
        similarities = analysis.position_similarity(model)
        assert similarities.shape == (13, 13)
        for i in range(13):
            for j in range(13):
                cosine = np.dot(positions[i], positions[j]) / (
                    np.linalg.norm(positions[i]) * np.linalg.norm(positions[j])
                )
                assert similarities[i, j] == pytest.approx(cosine, abs=1e-5)


@pytest.mark.parametrize("name", ["diet_abs", "shaw", "none"])
@pytest.mark.parametrize("segment_encoding", ["input", "none"])
def test_model_without_positions_at_the_input_is_refused(name, segment_encoding):
    backbone = tiny_backbone(position_encoding=name, segment_encoding=segment_encoding)
    with pytest.raises(ValueError, match=f"position_encoding='{name}'"):
        analysis.position_similarity(backbone)


# === The picture ===


def test_histogram_shows_each_pair_once():
    similarities = np.eye(4)
    similarities[np.triu_indices(4, 1)] = [0.51, 0.51, 0.51, -0.99, 0.01, 1.0000001]
    # The other half is not used.
    similarities[np.tril_indices(4, -1)] = -0.3
    figure = analysis.plot_position_similarity({"one": similarities, "two": -np.ones((3, 3))})
    (axis,) = figure.axes
    assert [text.get_text() for text in axis.get_legend().texts] == ["one", "two"]
    assert "cosine similarity" in axis.get_xlabel()
    assert axis.get_ylabel() == "share of all pairs"
    one, two = (patch.get_xy() for patch in axis.patches)
    # Half of the first model's pairs are in the bar that starts at 0.5.
    # All of the second model's pairs are in the first bar.
    assert one[:, 1].max() == pytest.approx(0.5)
    assert one[np.argmax(one[:, 1]), 0] == pytest.approx(0.5)
    assert two[:, 1].max() == pytest.approx(1.0)
    assert two[np.argmax(two[:, 1]), 0] == pytest.approx(-1.0)
    for x, y in (one.T, two.T):
        # Bars have a width of 1 / 40. The area of the outline shows that no pair is missing.
        area = abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2
        assert area * 40 == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("similarities", "message"),
    [
        ({}, "at least one model"),
        ({"model": np.ones((2, 3))}, r"Received: shape=\(2, 3\) for 'model'"),
        ({"model": np.ones((1, 1))}, r"Received: shape=\(1, 1\) for 'model'"),
    ],
)
def test_bad_arguments_of_the_plot_are_refused(similarities, message):
    with pytest.raises(ValueError, match=message):
        analysis.plot_position_similarity(similarities)
