"""`DietBertTextClassifier`: its head, losses, labels, and `fit` from raw texts and pairs."""

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet.models import (
    DietBertBackbone,
    DietBertTextClassifier,
    DietBertTextClassifierPreprocessor,
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


def tiny_classifier(num_classes=7, with_preprocessor=False, backbone=None, **arguments):
    preprocessor = None
    if with_preprocessor:
        preprocessor = DietBertTextClassifierPreprocessor(
            DietBertTokenizer(VOCABULARY), sequence_length=13
        )
    backbone = tiny_backbone(num_layers=1) if backbone is None else backbone
    return DietBertTextClassifier(backbone, num_classes, preprocessor, **arguments)


# === Head ===


def test_logits_are_those_of_the_equation(rng):
    classifier = randomize_weights(tiny_classifier())
    inputs = random_inputs(rng)
    pooled = to_numpy(classifier.backbone(inputs)["pooled_output"]).astype("float64")
    head = classifier.output_dense
    assert head.kernel.path == "logits/kernel"
    expected = pooled @ to_numpy(head.kernel) + to_numpy(head.bias)
    assert_close(classifier(inputs), expected)
    assert len(classifier.weights) == len(classifier.backbone.weights) + 2


@pytest.mark.any_backend
@pytest.mark.parametrize("activation", [None, "softmax"])
def test_with_input_encodings_it_is_bert(rng, activation):
    sizes = {**SIZES, "num_layers": 1, "dropout": 0.0}
    bert = randomize_weights(
        keras_hub.models.BertTextClassifier(
            keras_hub.models.BertBackbone(**sizes), num_classes=7, activation=activation
        )
    )
    backbone = DietBertBackbone(**sizes, position_encoding="input", segment_encoding="input")
    ours = tiny_classifier(backbone=backbone, activation=activation)
    assert [w.shape for w in ours.weights] == [w.shape for w in bert.weights]
    ours.set_weights(bert.get_weights())
    inputs = random_inputs(rng)
    assert_close(ours(inputs), bert(inputs))


def test_dropout_before_the_head_is_active_in_training_only(rng):
    classifier = randomize_weights(tiny_classifier(dropout=0.5))
    inputs = random_inputs(rng)
    first, second = (to_numpy(classifier(inputs, training=True)) for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    assert_close(classifier(inputs), classifier(inputs, training=False))


@pytest.mark.any_backend
def test_conventions_and_configuration():
    backbone = tiny_backbone(num_layers=1, dtype="mixed_bfloat16")
    arguments = {"activation": "softmax", "dropout": 0.3, "name": "reader"}
    classifier = tiny_classifier(5, backbone=backbone, trainable=False, **arguments)
    assert classifier.dtype_policy.name == classifier.output_dense.dtype_policy.name
    assert classifier.dtype_policy.name == "mixed_bfloat16"
    assert classifier.trainable_weights == []
    assert classifier.output.shape == (None, 5)
    copy = DietBertTextClassifier.from_config(classifier.get_config())
    assert copy.get_config() == classifier.get_config()
    assert (copy.num_classes, copy.dropout, copy.name) == (5, 0.3, "reader")
    assert copy.activation is keras.activations.softmax
    assert not tiny_classifier(compile=False).compiled


# === Losses ===


def cross_entropy(logits, labels):
    logits = logits.astype("float64")
    log_sums = np.log(np.exp(logits).sum(-1))
    return (log_sums - logits[np.arange(len(labels)), labels]).mean()


@pytest.mark.parametrize("activation", [None, "softmax"])
def test_default_loss_is_the_cross_entropy(rng, activation):
    """From the constructor on; KerasHub 0.32 takes the first loss of a softmax from logits."""
    classifier = randomize_weights(tiny_classifier(activation=activation))
    inputs, labels = random_inputs(rng), np.array([6, 2])
    plain = tiny_classifier()
    plain.set_weights(classifier.get_weights())
    logits = to_numpy(plain(inputs))
    results = classifier.evaluate(inputs, labels, verbose=0, return_dict=True)
    assert results["loss"] == pytest.approx(cross_entropy(logits, labels), rel=1e-5)
    accuracy = (logits.argmax(-1) == labels).mean()
    assert results["sparse_categorical_accuracy"] == pytest.approx(accuracy)


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_one_class_is_a_regression(rng, shape):
    regression = randomize_weights(tiny_classifier(1))
    inputs, labels = random_inputs(rng), rng.normal(size=2).astype("float32")
    error = ((to_numpy(regression(inputs))[:, 0] - labels) ** 2).mean()
    for _ in range(2):
        results = regression.evaluate(inputs, labels.reshape(shape), verbose=0, return_dict=True)
        assert results["loss"] == pytest.approx(error, rel=1e-5)
        assert results["root_mean_squared_error"] == pytest.approx(error**0.5, rel=1e-5)
        regression.compile()


def test_a_loss_and_metrics_of_the_user_are_kept(rng):
    regression = tiny_classifier(1, activation="sigmoid")
    regression.compile(loss="binary_crossentropy", metrics=["binary_accuracy"])
    results = regression.evaluate(random_inputs(rng), [1, 0], verbose=0, return_dict=True)
    assert set(results) == {"loss", "binary_accuracy"}


# === Training ===


@pytest.mark.any_backend
def test_fit_learns_from_raw_pairs():
    classifier = randomize_weights(tiny_classifier(4, with_preprocessor=True, dropout=0.0))
    classifier.compile(keras.optimizers.Adam(0.01))
    x, y = (TEXTS[:4], TEXTS[1:]), np.arange(4)
    history = classifier.fit(x, y, batch_size=4, epochs=12, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]


@pytest.mark.any_backend
def test_fit_learns_a_similarity():
    """Regression of raw pairs, as in STS-B."""
    regression = randomize_weights(tiny_classifier(1, with_preprocessor=True, dropout=0.0))
    regression.compile(keras.optimizers.Adam(0.02), "mse")
    x, y = (TEXTS[:4], TEXTS[1:]), np.array([0.0, 1.5, 3.0, 5.0], dtype="float32")
    history = regression.fit(x, y, batch_size=4, epochs=12, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]


# === Labels ===

BAD_LABELS = {
    "too large": ([6, 7], r"\[0, 7\).* Received: labels from 6 to 7"),
    "negative": ([-1, 2], r"\[0, 7\).* Received: labels from -1 to 2"),
    "float": ([0.0, 2.5], "must be integers. Received: labels of dtype float"),
    "text": (["good", "bad"], "must be numbers. Received: text"),
}


@pytest.mark.parametrize(
    ("labels", "loss"),
    [
        *((labels, "auto") for labels in BAD_LABELS),
        ("negative", "sparse_categorical_crossentropy"),
    ],
)
def test_bad_labels_are_refused(rng, labels, loss):
    classifier = tiny_classifier()
    classifier.compile(loss=loss)
    inputs = random_inputs(rng)
    labels, words = BAD_LABELS[labels]
    for y in (labels, np.array(labels)):
        for call in (
            lambda y=y: classifier.fit(inputs, y, verbose=0),
            lambda y=y: classifier.fit(inputs, [1, 2], validation_data=(inputs, y), verbose=0),
            lambda y=y: classifier.evaluate(inputs, y, verbose=0),
            lambda y=y: classifier.train_on_batch(inputs, y),
        ):
            with pytest.raises(ValueError, match=words):
                call()


def test_bad_labels_in_grain_datasets_are_refused(rng):
    grain = pytest.importorskip("grain")
    inputs = random_inputs(rng, batch_size=1)
    elements = [({name: x[0] for name, x in inputs.items()}, label) for label in (0, 1, 7, 1)]
    dataset = grain.MapDataset.source(elements).batch(1)
    refusal = ValueError
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Keras reads Grain through tf.data there.
        refusal = tf.errors.InvalidArgumentError
    with pytest.raises(refusal, match=r"\[0, 7\)\. Received: labels from 7 to 7"):
        tiny_classifier().evaluate(dataset, verbose=0)


@pytest.mark.any_backend("tensorflow")
@pytest.mark.parametrize(("label", "dtype"), [(7, "int64"), (-1, "int32"), (0.5, "float32")])
def test_bad_labels_in_tf_data_are_refused(rng, label, dtype):
    tf = pytest.importorskip("tensorflow")
    labels = np.array([0, label, 1, 1]).astype(dtype)
    dataset = tf.data.Dataset.from_tensor_slices((random_inputs(rng, batch_size=4), labels))
    words = "must be integers" if dtype == "float32" else r"in \[0, num_classes\) = \[0, 7\)"
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        tiny_classifier().evaluate(dataset.batch(2), verbose=0)


@pytest.mark.any_backend
def test_labels_that_the_loss_ignores_are_accepted(rng):
    classifier = tiny_classifier()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    classifier.compile(loss=loss, metrics=[])
    classifier.evaluate(random_inputs(rng), [-1, 2], verbose=0)
    with pytest.raises(ValueError, match="labels from -2 to 2"):
        classifier.evaluate(random_inputs(rng), [-2, 2], verbose=0)


@pytest.mark.any_backend
def test_labels_of_other_losses_are_not_classes(rng):
    classifier = tiny_classifier(2)
    classifier.compile(loss=keras.losses.CategoricalCrossentropy(from_logits=True), metrics=[])
    classifier.evaluate(random_inputs(rng), np.array([[0.3, 0.7], [1, 0]]), verbose=0)
    tiny_classifier(1).evaluate(random_inputs(rng), [-3.5, 7.0], verbose=0)


@pytest.mark.any_backend
def test_num_classes_must_be_a_positive_integer():
    with pytest.raises(ValueError, match="`num_classes` must be a positive integer"):
        tiny_classifier(0)
