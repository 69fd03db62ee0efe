import keras_hub
import numpy as np
import pytest

from keras_diet import analysis
from keras_diet.models import DietBertMaskedLM
from tests.models.tiny import SIZES, randomize_weights, tiny_backbone


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
    task = DietBertMaskedLM(backbone, compile=False)
    np.testing.assert_array_equal(analysis.segment_scores(task), expected)


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["diet_abs", "diet_rel", "input"])
def test_positions_and_segments_add_up(rng, name):
    backbone, segments = with_segments(rng, position_encoding=name)
    segment_ids = [0, 0, 3, 3, 1, 4, 4]
    scores = analysis.position_and_segment_scores(backbone, segment_ids)
    positions = analysis.position_scores(backbone, 7)
    assert scores.shape == (2, 3, 7, 7)
    for i in range(7):
        for j in range(7):
            expected = positions[:, :, i, j] + segments[:, :, segment_ids[i], segment_ids[j]]
            np.testing.assert_allclose(scores[:, :, i, j], expected, rtol=1e-6)


@pytest.mark.any_backend
@pytest.mark.parametrize("segment_encoding", ["input", "none"])
def test_model_without_segment_scores_is_refused(segment_encoding):
    backbone = tiny_backbone(segment_encoding=segment_encoding)
    message = f"segment_encoding='{segment_encoding}'"
    with pytest.raises(ValueError, match=message):
        analysis.segment_scores(backbone)
    with pytest.raises(ValueError, match=message):
        analysis.position_and_segment_scores(backbone, [0, 1])


@pytest.mark.any_backend
def test_bert_of_kerashub_is_refused():
    bert = keras_hub.models.BertBackbone(**SIZES)
    with pytest.raises(ValueError, match="segment_encoding='input'"):
        analysis.segment_scores(bert)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("segment_ids", "message"),
    [
        ([0, 2], r"\[0, 2\)"),
        ([-1, 0], r"\[0, 2\)"),
        ([[0, 1]], r"shape=\(1, 2\)"),
        ([0.0, 1.0], "dtype=float64"),
        ([0] * 14, "max_sequence_length=13"),
        (np.zeros(0, dtype="int32"), "`length` must be a positive integer"),
    ],
)
def test_bad_segment_ids_are_refused(segment_ids, message):
    with pytest.raises(ValueError, match=message):
        analysis.position_and_segment_scores(tiny_backbone(), segment_ids)


@pytest.mark.any_backend
def test_model_without_positions_is_refused():
    with pytest.raises(ValueError, match="position_encoding='none'"):
        analysis.position_and_segment_scores(tiny_backbone(position_encoding="none"), [0, 1])
