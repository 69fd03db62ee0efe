"""`multi_label=True` of `DietBertTextClassifier`: losses, labels, `classify`, and files."""

import keras
import numpy as np
import pytest

from keras_diet.models import DietBertTextClassifier
from tests.helpers import once
from tests.models.tasks import tiny_preprocessor
from tests.models.test_malformed_inputs import Column
from tests.models.tiny import TEXTS, randomize_weights, tiny_backbone

NAMES = ["joy", "anger", "fear", "surprise"]
LABELS = [["fear", "joy"], [], ["anger"], ["surprise", "fear", "anger"], ["joy", "joy"]]
ROWS = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 1], [1, 0, 0, 0]])


def tiny_classifier(class_names=NAMES, **arguments):
    classifier = DietBertTextClassifier(
        tiny_backbone(num_layers=1),
        preprocessor=tiny_preprocessor("classifier"),
        class_names=class_names,
        **{"dropout": 0.0, "multi_label": True, **arguments},
    )
    return randomize_weights(classifier, seed=4)


@pytest.fixture(scope="module")
def classifier():
    return tiny_classifier()


def sigmoid_probabilities(classifier):
    outputs = classifier.predict(TEXTS, verbose=0).astype("float64")
    return outputs if classifier.activation.__name__ == "sigmoid" else 1 / (1 + np.exp(-outputs))


# === Losses and metrics ===


@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_default_loss_and_metric(activation):
    model = tiny_classifier(activation=activation)
    p = sigmoid_probabilities(model)
    results = model.evaluate(TEXTS, ROWS, verbose=0, return_dict=True)
    expected = -np.where(ROWS, np.log(p), np.log(1 - p)).mean()
    assert results["loss"] == pytest.approx(expected, rel=1e-4)
    accuracy = ((p > 0.5) == ROWS).mean()
    # Another threshold would give another accuracy.
    assert accuracy != ((p > 0.6225) == ROWS).mean()
    assert results["binary_accuracy"] == pytest.approx(accuracy)


@pytest.mark.any_backend
def test_it_learns():
    model = tiny_classifier()
    model.compile(keras.optimizers.Adam(0.02))
    losses = [model.train_on_batch(TEXTS, LABELS)[0] for _ in range(25)]
    assert model.fit(TEXTS, LABELS, batch_size=5, verbose=0).history["loss"][0] < 0.5 * losses[0]
    found = [
        {result["label"] for result in results} for results in model.classify(TEXTS, threshold=0.5)
    ]
    assert found == [set(labels) for labels in LABELS]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    ],
    ids=["name", "object"],
)
def test_sparse_losses_are_refused(loss):
    with pytest.raises(ValueError, match=r"sparse loss(.|\n)*BinaryCrossentropy"):
        tiny_classifier().compile(loss=loss)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 1}, "Received: num_classes=1"),
        ({"num_classes": 3, "activation": "softmax"}, "activation='softmax'"),
        ({"num_classes": 3, "activation": "relu"}, "activation='relu'"),
        ({"num_classes": 3, "multi_label": "yes"}, "`multi_label` must be one of"),
    ],
)
def test_arguments_that_do_not_go_together(arguments, message):
    with pytest.raises(ValueError, match=message):
        tiny_classifier(None, **arguments)


# === Labels ===

KINDS = {
    "lists": LABELS,
    "tuples and sets": [("joy", "fear"), set(), {"anger"}, *LABELS[3:]],
    "objects": np.array(LABELS, dtype=object),
    "padded": np.array([[*labels, "", "", ""][:3] for labels in LABELS]),
    "padded bytes": np.array([[*labels, "", "", ""][:3] for labels in LABELS]).astype("S"),
    "pandas": Column(LABELS, "O"),
    "integers": ROWS,
    "booleans": ROWS.astype("bool"),
    "floats": ROWS.astype("float32").tolist(),
}


# NumPy makes rows of 0 and 1 from all kinds.
ON_EACH_BACKEND = ("lists", "booleans")


@pytest.mark.parametrize("kind", [*ON_EACH_BACKEND, *once(*sorted(KINDS.keys() - ON_EACH_BACKEND))])
def test_labels(classifier, kind):
    expected = classifier.evaluate(TEXTS, ROWS.astype("float32"), verbose=0)
    assert classifier.evaluate(TEXTS, KINDS[kind], verbose=0) == pytest.approx(expected)
    assert classifier.test_on_batch(TEXTS, KINDS[kind]) == pytest.approx(expected)


def test_texts_without_a_label(classifier):
    expected = classifier.test_on_batch(TEXTS, np.zeros((5, 4)))
    assert classifier.test_on_batch(TEXTS, [[], [], [], [], []]) == pytest.approx(expected)


def test_probabilities_are_labels(classifier):
    p = sigmoid_probabilities(classifier)
    entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p)).mean()
    assert classifier.evaluate(TEXTS, p, verbose=0)[0] == pytest.approx(entropy, rel=1e-4)


@pytest.mark.any_backend
@pytest.mark.parametrize("kind", ["padded", "ragged", "rows"])
def test_labels_in_tf_data(classifier, kind):
    tf = pytest.importorskip("tensorflow")
    ragged = tf.ragged.constant(LABELS, dtype="string")
    labels = {"padded": KINDS["padded"], "ragged": ragged, "rows": ROWS}[kind]
    dataset = tf.data.Dataset.from_tensor_slices((TEXTS, labels)).batch(5)
    expected = classifier.evaluate(TEXTS, ROWS, verbose=0)
    assert classifier.evaluate(dataset, verbose=0) == pytest.approx(expected)


BAD = {
    "one name for each text": (["joy"] * 5, "list of names for each text.*'joy' in row 0"),
    "unknown name": ([*LABELS[:3], ["joy", "Fear"], []], "Received: 'Fear' in row 3. The names"),
    "missing": ([*LABELS[:4], None], "Received: None in row 4"),
    "number in a list": ([*LABELS[:4], [1]], "Received: 1 in row 4"),
    "classes": ([0, 1, 2, 3, 0], r"\(B, 4\). Received: y.shape=\(5,\)"),
    "column": (ROWS[:, :1], r"Received: y.shape=\(5, 1\)"),
    "too many columns": (np.ones((5, 5)), r"Received: y.shape=\(5, 5\)"),
    "three axes": (ROWS[..., None], r"Received: y.shape=\(5, 4, 1\)"),
    "two": (ROWS + ROWS, r"Received: 2 in row 0 for class 0"),
    "negative": (ROWS - [0, 0, 0, 1], "Received: -1 in row 0 for class 3"),
    "NaN": (np.where(ROWS.cumsum(0) > 1, np.nan, 0), "Received: nan in row 3 for class 1"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_labels(classifier, kind):
    y, message = BAD[kind]
    for call in (
        lambda: classifier.fit(TEXTS, y),
        lambda: classifier.evaluate(TEXTS, y),
        lambda: classifier.train_on_batch(TEXTS, y),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (2.0 * ROWS, "must be 0 or 1 for each class"),
        (np.full((5, 4), np.nan), "must be 0 or 1 for each class"),
        (ROWS[:, :3], r"\(B, 4\)(.|\n)*shape=\(None, 3\)"),
        (["joy"] * 5, "one name for each text"),
        ([["joy"], ["fear"], ["Fear"], ["joy"], [""]], r"names of classes.*Fear\W+in row\W+2"),
    ],
    ids=["two", "NaN", "shape", "flat", "name"],
)
def test_bad_labels_in_tf_data(labels, message):
    tf = pytest.importorskip("tensorflow")
    dataset = tf.data.Dataset.from_tensor_slices((TEXTS, labels)).batch(5)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        tiny_classifier().evaluate(dataset, verbose=0)


@pytest.mark.any_backend
def test_custom_losses_take_other_labels():
    model = tiny_classifier(None, num_classes=4)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)

    def without_missing(y, outputs):
        return loss(keras.ops.where(keras.ops.isnan(y), 0.0, y), outputs)

    model.compile(loss=without_missing, metrics=[])
    missing = np.where(ROWS > 0, np.nan, 0).astype("float32")
    expected = tiny_classifier().evaluate(TEXTS, np.zeros((5, 4)), verbose=0)[0]
    assert model.evaluate(TEXTS, missing, verbose=0) == pytest.approx(expected)


# === Classify ===


@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_classify(activation):
    model = tiny_classifier(activation=activation)
    p = sigmoid_probabilities(model)
    order = np.argsort(-p, axis=-1)
    results = model.classify(TEXTS)
    for result, of_text, best in zip(results, p, order, strict=True):
        assert [entry["label"] for entry in result] == [NAMES[i] for i in best]
        probabilities = [entry["probability"] for entry in result]
        np.testing.assert_allclose(probabilities, of_text[best], rtol=1e-4)
    threshold = float(np.median(p))
    above = model.classify(TEXTS, threshold=threshold)
    assert [len(result) for result in above] == (p >= threshold).sum(-1).tolist()
    assert above == [[e for e in result if e["probability"] >= threshold] for result in results]
    # A probability that equals the threshold counts.
    second = results[3][1]["probability"]
    assert model.classify(TEXTS, threshold=second)[3] == results[3][:2]
    both = model.classify(TEXTS, top_k=1, threshold=threshold)
    assert both == [result[:1] for result in above]
    assert model.classify(TEXTS[2], threshold=1.0) == []


@pytest.mark.any_backend
def test_files(tmp_path, classifier):
    classifier.save(tmp_path / "model.keras")
    classifier.save_to_preset(tmp_path / "preset")
    for loaded in (
        keras.saving.load_model(tmp_path / "model.keras"),
        DietBertTextClassifier.from_preset(tmp_path / "preset"),
    ):
        assert (loaded.multi_label, loaded.class_names) == (True, NAMES)
        assert loaded.classify(TEXTS[0]) == classifier.classify(TEXTS[0])
        assert loaded.evaluate(TEXTS, LABELS, verbose=0) == pytest.approx(
            classifier.evaluate(TEXTS, LABELS, verbose=0)
        )
    new_head = DietBertTextClassifier.from_preset(tmp_path / "preset", num_classes=7)
    assert (new_head.multi_label, new_head.class_names) == (True, None)
