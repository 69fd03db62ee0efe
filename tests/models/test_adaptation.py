"""Trained models with segments, longer sequences, or positional scores that are cached."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    AbsolutePositionBias,
    BucketedRelativePositionBias,
    RelativePositionBias,
    UntiedPositionBias,
    cache_positions,
)
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS
from keras_diet.models import (
    DietBertMaskedLM,
    add_segments,
    extend_positions,
)
from tests.helpers import assert_all_close, assert_close, gradients, random_loss, to_numpy
from tests.models.tiny import (
    SIZES,
    random_inputs,
    random_masked_inputs,
    randomize_weights,
    tiny_backbone,
)

pytestmark = pytest.mark.any_backend
HEADS, LENGTH, LONGER = SIZES["num_heads"], SIZES["max_sequence_length"], 29
ABSOLUTE = ("diet_abs", "input", "diet_abs_input", "t5_input", "tupe_abs", "tupe_rel")


def trained(**arguments):
    return randomize_weights(tiny_backbone(**arguments))


def sequence_output(model, inputs):
    return to_numpy(model(inputs)["sequence_output"])


# === All changes ===

CHANGES = {
    "segments": lambda model: add_segments(model),
    "segments at the input": lambda model: add_segments(model, 3, "input"),
    "positions": lambda model: extend_positions(model, LONGER, "repeat"),
    "cache": cache_positions,
}
every_change = pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))


@pytest.mark.any_backend("jax")
@every_change
def test_a_task_is_changed_in_a_copy(rng, change):
    """On JAX, compiled training steps destroy arrays that another model shares."""
    backbone = trained(position_encoding="diet_abs", segment_encoding="none", num_layers=1)
    task = randomize_weights(DietBertMaskedLM(backbone))
    block = backbone.encoder.transformer_layers[0]
    for layer in (backbone.embeddings_layer_norm, block.self_attention):
        layer.trainable = False
    task.compile(keras.optimizers.SGD(0.5), task.loss)
    inputs, labels, weights = random_masked_inputs(rng)
    before = [to_numpy(weight).copy() for weight in task.weights]
    copy = change(task)
    assert type(copy) is DietBertMaskedLM
    assert_close(copy(inputs), task(inputs))
    assert isinstance(copy.optimizer, keras.optimizers.SGD)
    assert float(copy.optimizer.learning_rate) == 0.5
    frozen, also = ({w.path for w in each.weights if not w.trainable} for each in (task, copy))
    assert {path for path in also if not path.endswith("/scores")} == frozen
    copy.fit(inputs, labels, sample_weight=weights, verbose=0)
    step = copy.backbone.token_embedding.embeddings - task.backbone.token_embedding.embeddings
    assert np.abs(to_numpy(step)).max() > 1e-6
    assert_all_close(task.weights, before, 0)


@every_change
@pytest.mark.parametrize("replaced", ["lora", "int8"])
def test_replaced_weights_are_refused(change, replaced):
    model = tiny_backbone(num_layers=1, segment_encoding="none")
    if replaced == "lora":
        model.enable_lora(2)
    else:
        model.pooled_dense.quantize("int8")
    with pytest.raises(ValueError, match="before `quantize` and `enable_lora`"):
        change(model)


# === Segments ===


@pytest.mark.parametrize(
    ("arguments", "num_segments", "segment_encoding"),
    [
        ({"position_encoding": "diet_rel"}, 2, "per-head"),
        ({"position_encoding": "input"}, 3, "per-head"),
        ({"position_encoding": "diet_abs"}, 3, "input"),
        ({"position_encoding": "input"}, 2, "input"),
        ({"position_encoding": "sinusoidal"}, 3, "input"),
        # Table 2 has this row: DIET-ABS-LIN with segments at the input.
        ({"projection_dim": 5}, 2, "input"),
    ],
)
def test_segments_start_at_zero_and_are_trained(rng, arguments, num_segments, segment_encoding):
    pretrained = trained(segment_encoding="none", **arguments)
    backbone = add_segments(pretrained, num_segments, segment_encoding)
    assert backbone.segment_encoding == segment_encoding
    assert backbone.num_segments == num_segments
    inputs = random_inputs(rng, num_segments=num_segments)
    assert_close(sequence_output(backbone, inputs), sequence_output(pretrained, inputs))
    weights = [layer.segment_embedding for layer in backbone.encoder.segment_biases]
    if segment_encoding == "input":
        assert weights == []
        weights = [backbone.input_encoding.segment_embedding.embeddings]
        assert weights[0].shape == (num_segments, 15)
    added = len(backbone.weights) - len(pretrained.weights)
    assert added == len(weights) == (2 if segment_encoding == "per-head" else 1)
    for gradient in gradients(random_loss(lambda: backbone(inputs), rng), weights):
        # Each segment gets another vector or score.
        assert np.abs(np.diff(gradient, axis=-2)).max() > 1e-7


# === Longer sequences ===


@pytest.mark.parametrize(
    ("position_encoding", "method"),
    [
        *((name, "interpolate") for name in sorted(POSITION_ENCODINGS)),
        *((name, "repeat") for name in ("diet_abs", "tupe_rel", "diet_abs_input")),
        # Layers of the user.
        (AbsolutePositionBias(HEADS, max_length=LENGTH, rank=5, key_length=LENGTH), "repeat"),
        (RelativePositionBias(HEADS, max_length=LENGTH), "repeat"),
        (BucketedRelativePositionBias(HEADS), "repeat"),
        (UntiedPositionBias(HEADS, max_length=LENGTH, key_dim=5, position_dim=15), "repeat"),
        # A layer that is longer than the model stays as it is.
        (AbsolutePositionBias(HEADS, max_length=2 * LONGER, rank=5), "interpolate"),
    ],
)
def test_longer_sequences_go_in(rng, position_encoding, method):
    # Rotary positions need an even size of the heads.
    hidden_dim = 18 if position_encoding == "rotary" else SIZES["hidden_dim"]
    model = trained(position_encoding=position_encoding, hidden_dim=hidden_dim)
    extended = extend_positions(model, LONGER, method)
    assert (extended.max_sequence_length, model.max_sequence_length) == (LONGER, LENGTH)
    assert np.isfinite(sequence_output(extended, random_inputs(rng, length=LONGER))).all()
    inputs = random_inputs(rng, length=LENGTH)
    difference = sequence_output(extended, inputs) - sequence_output(model, inputs)
    if method == "interpolate" and position_encoding in ABSOLUTE:
        assert np.abs(difference).max() > 1e-2
    else:
        np.testing.assert_allclose(difference, 0, atol=1e-5)


@pytest.mark.parametrize(
    ("position_encoding", "first"), [("diet_abs", 0), ("input", 3)], ids=["bias", "input"]
)
def test_rows_of_absolute_positions(position_encoding, first):
    """Rows before the first position belong to padding."""
    model = trained(position_encoding=position_encoding, first_position=first or None)
    before, between, repeated = (
        to_numpy(
            each.input_encoding.position_embedding.weights[0]
            if first
            else each.encoder.position_biases[0].query_embedding
        )
        for each in (
            model,
            extend_positions(model, 2 * LENGTH - 1),
            extend_positions(model, 2 * LENGTH + 1, "repeat"),
        )
    )
    rows = before[first:]
    # Two steps for one: every other row is an old one, the others lie in between.
    np.testing.assert_array_equal(between[:first], before[:first])
    np.testing.assert_allclose(between[first::2], rows, atol=1e-6)
    np.testing.assert_allclose(between[first + 1 :: 2], (rows[1:] + rows[:-1]) / 2, atol=1e-6)
    np.testing.assert_array_equal(repeated, np.concatenate([before, rows, rows[:1]]))


@pytest.mark.parametrize(("length", "longer", "quarter"), [(LENGTH, LONGER, 3), (3, 5, 1)])
def test_farther_distances_get_the_mean_of_those_before_them(length, longer, quarter):
    model = trained(position_encoding="diet_rel", max_sequence_length=length)
    before, after = (
        to_numpy(each.encoder.position_biases[1].relative_embedding)
        for each in (model, extend_positions(model, longer))
    )
    added = longer - length
    np.testing.assert_array_equal(after[added:-added], before)
    assert (after[:added] == before[:quarter].mean(axis=0)).all()
    assert (after[-added:] == before[-quarter:].mean(axis=0)).all()


@pytest.mark.parametrize("longer", [LENGTH, LONGER])
@pytest.mark.parametrize(
    ("arguments", "method"),
    [
        ({"position_encoding": "diet_abs"}, "interpolate"),
        ({"position_encoding": "input", "first_position": 3}, "repeat"),
        ({"position_encoding": "diet_rel"}, "interpolate"),
    ],
)
def test_positions_that_were_not_trained_are_replaced(arguments, method, longer):
    short = trained(**arguments, max_sequence_length=7)
    model = extend_positions(short, LENGTH, "repeat")
    for weight, old in zip(model.weights, short.weights, strict=True):
        if weight.shape != old.shape:
            values, added = np.array(to_numpy(weight)), weight.shape[0] - old.shape[0]
            if weight.name == "relative_embedding":
                values[: added // 2] = values[-added // 2 :] = 9.0
            else:
                values[-added:] = 9.0
            weight.assign(values)
    found = extend_positions(model, longer, method, trained_length=7)
    for weight, expected in zip(
        found.weights, extend_positions(short, longer, method).weights, strict=True
    ):
        np.testing.assert_array_equal(to_numpy(weight), to_numpy(expected), weight.path)


@pytest.mark.parametrize("method", ["interpolate", "repeat"])
def test_projections_of_linformer_keep_their_sums(method):
    model = trained(position_encoding="diet_abs", segment_encoding="none", projection_dim=5)
    # Columns are positions: the same for all, so that stretching changes nothing.
    columns = np.arange(1, 6)[:, None] * np.ones((5, LENGTH))
    model.encoder.transformer_layers[0].self_attention.key_projection.assign(columns)
    extended = extend_positions(model, LONGER, method).encoder.transformer_layers[0]
    after = to_numpy(extended.self_attention.key_projection)
    assert after.shape == (5, LONGER)
    np.testing.assert_allclose(after.sum(axis=1), columns.sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "backbone", "arguments", "message"),
    [
        (add_segments, {"segment_encoding": "input"}, (), "must not have segments.*'input'"),
        (add_segments, {}, (0,), "`num_segments` must be a positive int"),
        (add_segments, {}, (2, "none"), "`segment_encoding` must be.*'none'"),
        (extend_positions, {}, (LENGTH,), "`max_sequence_length` must be larger than 13"),
        (extend_positions, {}, (LONGER, "stretch"), "one of 'interpolate', 'repeat'.*'stretch'"),
        (extend_positions, {}, (LONGER, "repeat", 14), "`trained_length` must be.* 1 and 13.*14"),
        (extend_positions, {}, (12, "repeat", 7), "`max_sequence_length` must be larger than 12"),
    ],
)
def test_what_cannot_be_changed(change, backbone, arguments, message):
    with pytest.raises(ValueError, match=message):
        change(tiny_backbone(num_layers=1, **backbone), *arguments)


# === Positional scores that are computed already ===


def test_cached_positions_are_in_presets(rng, tmp_path):
    task = DietBertMaskedLM(trained(position_encoding="diet_rel"))
    copy, (inputs, *_) = cache_positions(task), random_masked_inputs(rng)
    assert_close(copy(inputs), task(inputs))
    copy.save_to_preset(tmp_path)
    loaded = DietBertMaskedLM.from_preset(tmp_path)
    assert loaded.backbone.cached_positions
    assert_close(loaded(inputs), copy(inputs))
