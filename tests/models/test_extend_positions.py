"""Longer sequences for trained models."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    POSITION_ENCODINGS,
    AbsolutePositionBias,
    BucketedRelativePositionBias,
    PositionBias,
    RelativePositionBias,
    UntiedPositionBias,
)
from keras_diet.models import DietBertMaskedLM, add_segments, extend_positions
from tests.helpers import to_numpy
from tests.models.tasks import TASKS, tiny_task
from tests.models.tiny import (
    SIZES,
    TEXTS,
    random_inputs,
    random_masked_inputs,
    randomize_weights,
    tiny_backbone,
)

LENGTH, LONGER = SIZES["max_sequence_length"], 29
ABSOLUTE = ("diet_abs", "input", "diet_abs_input", "tupe_abs", "tupe_rel")


def trained(**arguments):
    return randomize_weights(tiny_backbone(**arguments))


def sequence_output(model, inputs):
    return to_numpy(model(inputs)["sequence_output"])


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("position_encoding", "method"),
    [
        *((name, "interpolate") for name in sorted(POSITION_ENCODINGS)),
        ("diet_abs", "repeat"),
        ("tupe_rel", "repeat"),
        ("diet_abs_input", "repeat"),
    ],
)
def test_longer_sequences_go_in(rng, position_encoding, method):
    # Rotary positions need an even size of the heads.
    hidden_dim = 18 if position_encoding == "rotary" else SIZES["hidden_dim"]
    model = trained(position_encoding=position_encoding, hidden_dim=hidden_dim)
    extended = extend_positions(model, LONGER, method)
    assert extended.max_sequence_length == LONGER
    assert model.max_sequence_length == LENGTH
    output = sequence_output(extended, random_inputs(rng, length=LONGER))
    assert output.shape == (2, LONGER, hidden_dim)
    assert np.isfinite(output).all()
    inputs = random_inputs(rng, length=LENGTH)
    difference = sequence_output(extended, inputs) - sequence_output(model, inputs)
    if method == "interpolate" and position_encoding in ABSOLUTE:
        assert np.abs(difference).max() > 1e-2
    else:
        np.testing.assert_allclose(difference, 0, atol=1e-5)


def absolute_rows(model):
    return to_numpy(model.encoder.position_biases[0].query_embedding)


def test_interpolated_rows():
    model = trained(position_encoding="diet_abs")
    before = absolute_rows(model)
    # Two steps for one: every other row is an old one, the others lie in between.
    after = absolute_rows(extend_positions(model, 2 * LENGTH - 1))
    np.testing.assert_allclose(after[::2], before, atol=1e-6)
    np.testing.assert_allclose(after[1::2], (before[1:] + before[:-1]) / 2, atol=1e-6)


@pytest.mark.any_backend
def test_repeated_rows():
    model = trained(position_encoding="diet_abs")
    before = absolute_rows(model)
    after = absolute_rows(extend_positions(model, 2 * LENGTH + 1, "repeat"))
    np.testing.assert_array_equal(after, np.concatenate([before, before, before[:1]]))


def test_farther_distances_get_the_mean_of_those_before_them():
    model = trained(position_encoding="diet_rel")
    before = to_numpy(model.encoder.position_biases[1].relative_embedding)
    extended = extend_positions(model, LONGER)
    after = to_numpy(extended.encoder.position_biases[1].relative_embedding)
    added = LONGER - LENGTH
    np.testing.assert_array_equal(after[added:-added], before)
    # A quarter of the 13 positions.
    assert (after[:added] == before[:3].mean(axis=0)).all()
    assert (after[-added:] == before[-3:].mean(axis=0)).all()


@pytest.mark.any_backend
@pytest.mark.parametrize("method", ["interpolate", "repeat"])
def test_projections_of_linformer_keep_their_sums(method):
    model = trained(position_encoding="diet_abs", segment_encoding="none", projection_dim=5)
    # Columns are positions: the same for all, so that stretching changes nothing.
    (layer, *_) = model.encoder.transformer_layers
    projection = layer.self_attention.key_projection
    columns = np.arange(1, 6)[:, None] * np.ones((5, LENGTH))
    projection.assign(columns)
    extended = extend_positions(model, LONGER, method).encoder.transformer_layers[0]
    after = to_numpy(extended.self_attention.key_projection)
    assert after.shape == (5, LONGER)
    np.testing.assert_allclose(after.sum(axis=1), columns.sum(axis=1), rtol=1e-5)


def test_a_task_keeps_its_head(rng):
    task = randomize_weights(DietBertMaskedLM(tiny_backbone(position_encoding="diet_rel")))
    inputs, _, _ = random_masked_inputs(rng)
    extended = extend_positions(task, LONGER)
    assert extended.backbone.max_sequence_length == LONGER
    np.testing.assert_allclose(to_numpy(extended(inputs)), to_numpy(task(inputs)), atol=1e-5)


HEADS = SIZES["num_heads"]
BIAS_LAYERS = {
    "absolute": lambda length: AbsolutePositionBias(HEADS, length, rank=5),
    "key_length": lambda length: AbsolutePositionBias(HEADS, length, rank=5, key_length=length),
    "relative": lambda length: RelativePositionBias(HEADS, length),
    "bucketed": lambda length: BucketedRelativePositionBias(HEADS),
    "untied": lambda length: UntiedPositionBias(HEADS, 5, length, position_dim=15),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("name", BIAS_LAYERS)
def test_custom_bias_layers(rng, name):
    bias = BIAS_LAYERS[name](LENGTH)
    model = trained(position_encoding=bias)
    extended = extend_positions(model, LONGER, "repeat")
    assert bias.max_length in (LENGTH, None)
    inputs = random_inputs(rng, length=LENGTH)
    np.testing.assert_allclose(
        sequence_output(extended, inputs), sequence_output(model, inputs), atol=1e-5
    )
    assert np.isfinite(sequence_output(extended, random_inputs(rng, length=LONGER))).all()


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["absolute", "relative"])
def test_a_layer_that_is_longer_than_the_model_stays_as_it_is(rng, name):
    model = trained(position_encoding=BIAS_LAYERS[name](2 * LONGER))
    extended = extend_positions(model, LONGER)
    for new, old in zip(extended.weights, model.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(new), to_numpy(old))


def test_training_does_not_change_the_shorter_model(rng):
    """On JAX, compiled training steps destroy arrays that another model shares."""
    model = trained(position_encoding="diet_rel")
    before = [to_numpy(weight) for weight in model.weights]
    extended = extend_positions(model, LONGER)
    trainer = keras.Model(extended.input, extended(extended.input)["sequence_output"])
    trainer.compile(keras.optimizers.SGD(0.1), "mse")
    trainer.fit(random_inputs(rng, length=LONGER), rng.normal(size=(2, LONGER, 15)), verbose=0)
    step = to_numpy(extended.token_embedding.embeddings - model.token_embedding.embeddings)
    assert np.abs(step).max() > 1e-6
    for weight, values in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), values)


@pytest.mark.any_backend
def test_what_is_frozen_stays_frozen():
    model = trained(position_encoding="diet_rel")
    model.token_embedding.trainable = False
    model.encoder.segment_biases[1].trainable = False
    extended = extend_positions(model, LONGER)
    names = [[w.path for w in each.trainable_weights] for each in (model, extended)]
    assert len(names[0]) == len(names[1]) == len(model.weights) - 2
    assert not extended.token_embedding.trainable


@pytest.mark.any_backend
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("task", TASKS)
def test_tasks_read_text_and_are_compiled_as_before(task):
    model = tiny_task(task)
    model.compile(keras.optimizers.SGD(0.5), "mse")
    extended = extend_positions(model, LONGER)
    assert isinstance(extended.optimizer, keras.optimizers.SGD)
    assert extended.loss == "mse"
    extended.preprocessor.sequence_length = LONGER
    inputs = extended.preprocessor(TEXTS)
    inputs = inputs[0] if task == "masked_lm" else inputs
    assert np.isfinite(to_numpy(extended(inputs))).all()
    assert extended.preprocessor is not model.preprocessor
    model = tiny_task(task, compile=False)
    assert not extend_positions(model, LONGER).compiled


@keras.saving.register_keras_serializable(package="keras_diet_tests")
class Learned(PositionBias):
    """A bias layer with an unknown kind of weight."""

    def build(self, query_shape=None, key_shape=None):
        self.table = self.add_weight(name="table", shape=(self.max_length, 1))
        self.built = True

    def compute_scores(self, query_length, key_length, start_index):
        return self.table[None, None, start_index : start_index + query_length]


@pytest.mark.any_backend
@pytest.mark.parametrize("length", [LENGTH, LENGTH - 1, 0, 2.5])
def test_lengths_that_are_not_longer(length):
    with pytest.raises(ValueError, match="`max_sequence_length` must be"):
        extend_positions(tiny_backbone(), length)


@pytest.mark.any_backend
def test_what_cannot_be_extended():
    with pytest.raises(ValueError, match=r"`method` must be one of.*'stretch'"):
        extend_positions(tiny_backbone(), LONGER, "stretch")
    with pytest.raises(ValueError, match=r"`model` must be.*DietBertBackbone.*Dense"):
        extend_positions(keras.layers.Dense(3), LONGER)
    own = tiny_backbone(position_encoding=Learned(SIZES["num_heads"], max_length=LENGTH))
    with pytest.raises(ValueError, match=r"weight '.*table' depends on the length in an"):
        extend_positions(own, LONGER)
    quantized = tiny_backbone()
    quantized.pooled_dense.quantize("int8")
    with pytest.raises(ValueError, match=r"before `quantize` and `enable_lora`"):
        extend_positions(quantized, LONGER)


@pytest.mark.any_backend
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", [lambda task: extend_positions(task, LONGER), add_segments])
def test_functions_that_are_not_registered_are_refused(change):
    task = DietBertMaskedLM(tiny_backbone(num_layers=1, segment_encoding="none"))
    task.compile("sgd", loss=lambda labels, logits: 0.0)
    with pytest.raises(ValueError, match=r"register_keras_serializable.*`compile=False`"):
        change(task)


@pytest.mark.any_backend
def test_few_distances_have_one_outer_distance():
    model = trained(position_encoding="diet_rel", max_sequence_length=3)
    before = to_numpy(model.encoder.position_biases[0].relative_embedding)
    extended = extend_positions(model, 5)
    after = to_numpy(extended.encoder.position_biases[0].relative_embedding)
    np.testing.assert_array_equal(after, before[[0, 0, *range(5), 4, 4]])


@keras.saving.register_keras_serializable(package="keras_diet_tests")
class Square(PositionBias):
    """A bias layer with a weight of a known name, which has the length on two axes."""

    def build(self, query_shape=None, key_shape=None):
        shape = (self.max_length, self.max_length)
        self.table = self.add_weight(name="key_embedding", shape=shape)
        self.built = True

    def compute_scores(self, query_length, key_length, start_index):
        return self.table[None, None, :query_length, :key_length]


@pytest.mark.any_backend
def test_weights_with_the_length_on_two_axes_are_refused():
    model = tiny_backbone(position_encoding=Square(SIZES["num_heads"], max_length=LENGTH))
    with pytest.raises(ValueError, match=r"key_embedding' depends on the length in an unknown"):
        extend_positions(model, LONGER)


def loss_of_a_user(labels, logits):
    return 0.0


@pytest.mark.any_backend
@pytest.mark.filterwarnings("ignore")
def test_named_functions_that_are_not_registered_are_refused():
    """Keras raises another error for them than for a lambda."""
    task = DietBertMaskedLM(tiny_backbone(num_layers=1))
    task.compile("sgd", loss=loss_of_a_user)
    with pytest.raises(ValueError, match=r"register_keras_serializable.*`compile=False`"):
        extend_positions(task, LONGER)
