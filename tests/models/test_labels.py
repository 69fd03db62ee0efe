"""Labels of tasks: classes, names, several labels a text, weights of classes, losses that fit."""

import warnings

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_diet.models import DietBertTextClassifier
from keras_diet.models.hub.classes import Classes, checked_class_weight, labels_of_names
from keras_diet.models.hub.losses import TokenAccuracy, sparse_loss
from tests.helpers import to_numpy
from tests.models.hub.toy import ToyBackbone, ToyTask, toy_inputs, toy_labels
from tests.models.tasks import tiny_preprocessor, tiny_task
from tests.models.test_data import Column, Series, tf_data
from tests.models.tiny import TEXTS, random_inputs, randomize_weights, tiny_backbone

pytestmark = pytest.mark.any_backend
losses = keras.losses
SPARSE = losses.SparseCategoricalCrossentropy
NAMES = ["neutral", "très bon", "bad"]
LABELS = ["bad", "neutral", "très bon", "neutral", "bad"]
IDS = np.array([2, 0, 1, 0, 2])
# Several labels for a text, or none.
TOPICS = ["anger", "joy", "fear", "calm"]
SETS = [["joy", "fear"], [], ["anger"], ["calm", "joy", "anger"], ["fear"]]
ROWS = np.array([[0, 1, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 1, 0]])


def classifier(class_names=NAMES, **arguments):
    arguments = {"preprocessor": tiny_preprocessor("classifier"), "dropout": 0.0, **arguments}
    backbone = tiny_backbone(num_layers=1)
    return randomize_weights(
        DietBertTextClassifier(backbone, class_names=class_names, **arguments), seed=6
    )


def of_topics():
    return classifier(TOPICS, multi_label=True)


def regression():
    return classifier(None, num_classes=1)


@pytest.fixture(scope="module")
def named():
    return classifier()


@pytest.fixture(scope="module")
def topics():
    return of_topics()


# === Names ===

KINDS = {
    "list": LABELS,
    "unicode": np.array(LABELS),
    "bytes": [label.encode() for label in LABELS],
    "objects": np.array(LABELS, dtype=object),
    "column": np.array(LABELS)[:, None],
    "Hugging Face": Column(LABELS),
    "pandas": Series(LABELS),
    "integers": Column(IDS.tolist()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_labels(named, kind):
    expected = named.evaluate(TEXTS, IDS, verbose=0)
    assert named.evaluate(TEXTS, KINDS[kind], batch_size=2, verbose=0) == pytest.approx(expected)
    assert named.test_on_batch(TEXTS, KINDS[kind]) == pytest.approx(expected)


def test_names_in_training_validation_and_datasets(named):
    def trained(labels):
        model = classifier()
        found = [model.train_on_batch(TEXTS, labels)[0]]
        history = model.fit(TEXTS, labels, validation_data=(TEXTS, labels), verbose=0).history
        return [*found, *history["loss"], *history["val_loss"]]

    assert trained(LABELS) == pytest.approx(trained(IDS), rel=1e-5)
    assert trained(LABELS) != pytest.approx(trained((IDS + 1) % 3), rel=1e-3)
    expected = named.evaluate(TEXTS, IDS, verbose=0)
    assert named.evaluate(tf_data(TEXTS, LABELS), verbose=0) == pytest.approx(expected)
    plain = classifier(preprocessor=None)
    inputs = random_inputs(np.random.default_rng(3), batch_size=5)
    expected = plain.evaluate(inputs, IDS, verbose=0)
    assert plain.evaluate(inputs, LABELS, verbose=0) == pytest.approx(expected)


def test_names_under_other_losses():
    model = classifier()
    loss = losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.2)
    model.compile(loss=loss, metrics=["categorical_accuracy"])
    expected = model.evaluate(TEXTS, np.eye(3)[IDS], verbose=0)
    assert model.evaluate(TEXTS, LABELS, verbose=0) == pytest.approx(expected)
    received = []

    def own_loss(y, outputs):
        received.append(to_numpy(y))
        return outputs[:, 0]

    model.compile(loss=own_loss, metrics=[], run_eagerly=True)
    model.test_on_batch(TEXTS, LABELS)
    np.testing.assert_array_equal(received[-1].ravel(), IDS)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=7))
def test_sets_of_names_are_rows(sets):
    classes = Classes("num_classes", 4, names=tuple(TOPICS), is_multi_label=True)
    rows = labels_of_names([[TOPICS[i] for i in labels] for labels in sets], classes)
    assert [set(np.flatnonzero(row)) for row in rows] == sets
    assert set(np.unique(rows)) <= {0.0, 1.0}


SETS_OF_NAMES = {
    "lists": SETS,
    "tuples and sets": [("joy", "fear"), set(), {"anger"}, *SETS[3:]],
    "objects": np.array(SETS, dtype=object),
    "padded": np.array([[*labels, "", "", ""][:3] for labels in SETS]),
    "padded bytes": np.array([[*labels, "", "", ""][:3] for labels in SETS]).astype("S"),
    "pandas": Series(SETS),
    "integers": ROWS,
    "booleans": ROWS.astype("bool"),
    "floats": ROWS.astype("float32").tolist(),
}


@pytest.mark.parametrize("kind", SETS_OF_NAMES)
def test_several_labels_for_a_text(topics, kind):
    expected = topics.evaluate(TEXTS, ROWS.astype("float32"), verbose=0)
    labels = SETS_OF_NAMES[kind]
    assert topics.evaluate(TEXTS, labels, batch_size=3, verbose=0) == pytest.approx(expected)
    assert topics.test_on_batch(TEXTS, labels) == pytest.approx(expected)


# === Arguments ===


ARGUMENTS = {
    "nothing": ({}, "`num_classes` must be a positive integer"),
    "no classes": ({"num_classes": 0}, "`num_classes` must be a positive integer"),
    "other number": ({"class_names": ["a", "b"], "num_classes": 3}, r"\['a', 'b'\], num_classes=3"),
    "same names": ({"class_names": ["a", "b", "a"]}, r"different.*\['a', 'b', 'a'\]"),
    "no string": ({"class_names": ["a", None]}, r"nonempty strings.*\['a', None\]"),
    "empty": ({"class_names": ["a", ""]}, r"nonempty strings.*\['a', ''\]"),
    "one name": ({"class_names": ["a"]}, "at least two"),
    "a string": ({"class_names": "ab"}, "Received: class_names='ab'"),
    "several labels of one": (
        {"num_classes": 1, "multi_label": True},
        "at least 2.*multi_label=True",
    ),
    "several labels, one sum": (
        {"num_classes": 3, "multi_label": True, "activation": "softmax"},
        "needs activation=None or 'sigmoid'.*activation='softmax'",
    ),
    "always 1": ({"num_classes": 1, "activation": "softmax"}, "a softmax need.*num_classes=1"),
}


@pytest.mark.parametrize("arguments, message", ARGUMENTS.values(), ids=list(ARGUMENTS))
def test_arguments_that_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        DietBertTextClassifier(tiny_backbone(num_layers=1), **arguments)


def test_files_keep_names_and_new_heads_have_none(tmp_path, topics):
    topics.save(tmp_path / "model.keras")
    topics.save_to_preset(tmp_path / "preset")
    load = DietBertTextClassifier.from_preset
    expected = topics.evaluate(TEXTS, SETS, verbose=0)
    for loaded in (
        keras.saving.load_model(tmp_path / "model.keras"),
        load(tmp_path / "preset"),
    ):
        assert (loaded.multi_label, loaded.class_names) == (True, TOPICS)
        assert loaded.classify(TEXTS[0]) == topics.classify(TEXTS[0])
        assert loaded.evaluate(TEXTS, SETS, verbose=0) == pytest.approx(expected)
    new_head = load(tmp_path / "preset", num_classes=7, class_names=None)
    assert (new_head.multi_label, new_head.class_names) == (True, None)
    new_names = load(tmp_path / "preset", num_classes=2, class_names=["a", "b"])
    assert new_names.class_names == ["a", "b"]


# === Refused labels ===


def compiled(loss):
    model = tiny_task("classifier")
    model.compile(loss=loss, metrics=[])
    return model


def of_seven():
    return tiny_task("classifier")


WRONG = {
    "too large": (of_seven, [6, 7, 0, 1, 2], r"\[0, 7\).*from 0 to 7"),
    "negative": (of_seven, [-1, 2, 0, 1, 2], "from -1 to 2"),
    "fraction": (of_seven, [0.0, 2.5, 1, 1, 1], "must be integers"),
    "NaN of a class": (of_seven, [0, np.nan, 1, 1, 1], "must be integers"),
    "function": (
        lambda: compiled("sparse_categorical_crossentropy"),
        [-1, 2, 0, 1, 2],
        "from -1 to 2",
    ),
    "not ignored": (
        lambda: compiled(SPARSE(from_logits=True, ignore_class=-1)),
        [-1, -2, 0, 1, 2],
        "from -2 to 2",
    ),
    "text": (of_seven, LABELS, "`y` must be numbers.*`class_names`"),
    "classes of a dense loss": (
        lambda: compiled(losses.CategoricalCrossentropy(from_logits=True)),
        [0, 1, 2, 3, 4],
        r"\(None, 7\).*y.shape=\(5,\).*need a sparse loss",
    ),
    "broadcast": (regression, np.ones((5, 3)), r"y.shape=\(5, 3\)"),
    "one row": (regression, np.ones((1, 5)), r"y.shape=\(1, 5\)"),
    "NaN": (regression, [1, 2, np.nan, 0, 0], "nan in row 2"),
    "infinite": (regression, [1, 2, 3, 0, np.inf], "inf in row 4"),
    "unknown name": (classifier, [*LABELS[:3], "Bad", "bad"], "'Bad' in row 3. The names are"),
    "missing name": (classifier, [*LABELS[:4], None], "None in row 4"),
    "number beside names": (classifier, [1, *LABELS[1:]], "`y` must be numbers"),
    "empty name": (classifier, ["bad", "", *LABELS[2:]], "'' in row 1"),
    "one name for each text": (of_topics, ["joy"] * 5, "'j' in row 0"),
    "unknown topic": (of_topics, [*SETS[:3], ["joy", "Fear"], []], "'Fear' in row 3"),
    "classes of topics": (of_topics, IDS, r"\(None, 4\).*y.shape=\(5,\)"),
    "too many columns": (of_topics, np.ones((5, 5)), r"y.shape=\(5, 5\)"),
    "two": (of_topics, 2 * ROWS, "0 or 1.*from 0 to 2"),
    "minus one": (of_topics, ROWS - 1, "from -1 to 0"),
    "NaN of a topic": (of_topics, np.where(ROWS.cumsum(0) > 1, np.nan, 0), "nan in row 3"),
}


@pytest.mark.parametrize("make, labels, message", WRONG.values(), ids=list(WRONG))
def test_refused_labels(make, labels, message):
    model = make()
    for call in (
        lambda: model.fit(TEXTS, labels, verbose=0),
        lambda: model.evaluate(TEXTS, labels, verbose=0),
        lambda: model.train_on_batch(TEXTS, labels),
        lambda: model.evaluate(iter([(TEXTS, labels)]), verbose=0),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_labels_that_are_accepted():
    compiled(SPARSE(from_logits=True, ignore_class=-1)).evaluate(TEXTS, [-1, 2, 0, 1, 2], verbose=0)
    dense = compiled(losses.CategoricalCrossentropy(from_logits=True))
    dense.evaluate(TEXTS, np.full((5, 7), 1 / 7), verbose=0)
    model = regression()
    model.evaluate(TEXTS, np.array([[-3.5], [7.0], [0], [1], [2]]), verbose=0)

    def masked_error(y, outputs):
        value, weight = y[:, :1], y[:, 1:]
        return keras.ops.where(keras.ops.isnan(value), 0.0, weight * (outputs - value) ** 2)

    # A custom loss may take other labels.
    model.compile(loss=masked_error, metrics=[])
    y = np.array([[1, 2], [np.nan, 1], [0.5, 1], [0, 3], [1.5, 1]], "float32")
    assert np.isfinite(model.fit(TEXTS, y, verbose=0).history["loss"]).all()


@pytest.mark.parametrize(
    "weights, message",
    [
        ([1, 2, 3, np.nan, 1], "`sample_weight` must hold finite numbers. Received: nan in row 3"),
        (np.ones((5, 3)), r"one weight for each label.*shape=\(5, 3\)"),
        (["a"] * 5, "`sample_weight` must be numbers"),
    ],
)
def test_refused_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        of_seven().fit(TEXTS, np.arange(5), sample_weight=weights)


def test_labels_of_several_outputs():
    rng = np.random.default_rng(3)
    task = randomize_weights(ToyTask(ToyBackbone()))
    inputs, labels = toy_inputs(rng), toy_labels(rng)
    weights = dict.fromkeys(labels, np.array([0.0, 3.0, 0.5, 0.0, 1.0]))
    task.compile(keras.optimizers.SGD(0.0))
    history = task.fit(inputs, labels, validation_data=(inputs, labels, weights), verbose=0).history
    expected = task.evaluate(inputs, labels, sample_weight=weights, return_dict=True, verbose=0)
    assert history["val_loss"][0] == pytest.approx(expected["loss"], rel=1e-5)
    assert history["val_loss"][0] != pytest.approx(history["loss"][0], rel=1e-2)
    with pytest.raises(ValueError, match=r"\[0, num_orders\) = \[0, 2\)"):
        task.fit(inputs, {**labels, "second": labels["second"] + 1})
    with pytest.raises(ValueError, match=r"'first', 'second'.*the keys ..third'"):
        task.fit(inputs, {"third": labels["first"]})


# === Weights of classes ===

CLASSES = Classes("num_classes", 3, one_per_example=True, names=tuple(NAMES))


def test_class_weights_have_indices():
    assert checked_class_weight({"bad": 2, 0: 0.5}, CLASSES) == {0: 0.5, 2: 2.0}
    assert checked_class_weight({5: 3}, None) == {5: 3.0}
    assert checked_class_weight(None, CLASSES) is None
    model = classifier()
    model.compile(keras.optimizers.SGD(0.0))
    by_name, by_index, without = (
        model.fit(TEXTS, LABELS, class_weight=weights, verbose=0).history["loss"]
        for weights in ({"bad": 3.0, "neutral": 0.5}, {2: 3.0, 0: 0.5}, None)
    )
    assert by_name == pytest.approx(by_index)
    assert by_name != pytest.approx(without)


@pytest.mark.parametrize("weights", [{"Bad": 2.0}, {3: 1.0}, {-1: 1.0}])
def test_refused_class_weights(weights):
    message = "`class_weight` must be a dictionary from classes"
    with pytest.raises(ValueError, match=message):
        classifier().fit(TEXTS, LABELS, class_weight=weights)
    several = Classes("num_classes", 4, is_multi_label=True)
    with pytest.raises(ValueError, match="with one class each"):
        checked_class_weight({0: 1.0}, several)


# === Losses ===


def warnings_of(kind, loss, **arguments):
    if kind == "classifier":
        arguments = {"num_classes": 3, **arguments}
        task = DietBertTextClassifier(tiny_backbone(num_layers=1), compile=False, **arguments)
    else:
        task = tiny_task(kind, with_preprocessor=False, compile=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        task.compile(loss=loss)
    return [str(warning.message) for warning in caught]


OTHER = [
    ("classifier", "sparse_categorical_crossentropy", None, "sparse_categorical_crossentropy"),
    ("classifier", {"logits": SPARSE()}, None, "SparseCategoricalCrossentropy"),
    ("classifier", losses.categorical_crossentropy, None, "categorical_crossentropy"),
    ("classifier", [losses.BinaryFocalCrossentropy()], None, "BinaryFocalCrossentropy"),
    ("classifier", "kl_divergence", None, "kl_divergence"),
    ("classifier", SPARSE(from_logits=True), "softmax", "SparseCategoricalCrossentropy"),
    ("masked_lm", "sparse_categorical_crossentropy", None, "sparse_categorical_crossentropy"),
    ("embedder", "binary_crossentropy", None, "binary_crossentropy"),
]


@pytest.mark.parametrize("kind, loss, activation, name", OTHER)
def test_losses_of_other_outputs_give_a_warning(kind, loss, activation, name):
    arguments = {"activation": activation} if activation else {}
    (found,) = warnings_of(kind, loss, **arguments)
    returned = "embeddings" if kind == "embedder" else "logits"
    if activation:
        assert f"`{name}` takes logits here, but" in found
        assert "returns probabilities. Compile with `from_logits=False`" in found
    else:
        assert f"`{name}` takes probabilities here, but" in found
        assert f"returns {returned}. Compile with `from_logits={kind != 'embedder'}`" in found


FITTING = [
    ("classifier", "auto", {}),
    ("classifier", "auto", {"activation": "softmax"}),
    ("classifier", "auto", {"activation": "sigmoid", "multi_label": True}),
    ("classifier", "auto", {"num_classes": 1}),
    ("classifier", None, {}),
    ("classifier", lambda y, outputs: outputs[:, 0], {}),
    ("classifier", "mse", {}),
    ("classifier", SPARSE(), {"activation": "relu"}),
    ("classifier", "binary_crossentropy", {"activation": "sigmoid", "num_classes": 1}),
    ("masked_lm", "auto", {}),
    ("embedder", losses.BinaryCrossentropy(from_logits=True), {}),
]


@pytest.mark.parametrize("kind, loss, arguments", FITTING)
def test_losses_that_fit_give_none(kind, loss, arguments):
    assert warnings_of(kind, loss, **arguments) == []


def test_sparse_losses():
    assert sparse_loss(SPARSE(ignore_class=3)) == (True, 3)
    assert sparse_loss("sparse_categorical_crossentropy") == (True, None)
    assert sparse_loss(losses.BinaryCrossentropy()) == (False, None)


@pytest.mark.parametrize("weighted", [True, False])
def test_each_token_counts_the_same_in_batches_of_all_lengths(rng, weighted):
    metric, correct, total = TokenAccuracy(), 0.0, 0.0
    for length in (3, 11):
        labels, outputs = rng.integers(0, 3, (2, length)), rng.normal(size=(2, length, 3))
        weights = rng.integers(0, 5, (2, length)) if weighted else np.ones((2, length))
        metric.update_state(labels, outputs, weights if weighted else None)
        correct += (weights * (outputs.argmax(-1) == labels)).sum()
        total += weights.sum()
    assert float(metric.result()) == pytest.approx(correct / total, rel=1e-5)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert type(copy) is TokenAccuracy
    assert copy.name == "sparse_categorical_accuracy"
