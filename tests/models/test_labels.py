"""Labels of tasks: classes, names, several labels a text, weights of classes, losses that fit."""

import re
import warnings

import keras
import numpy as np
import pytest

from keras_diet.models import DietBertTextClassifier
from keras_diet.models.hub.labels import checked_weights, numbers_of, of_output
from keras_diet.training import ExactResume
from tests.helpers import to_numpy
from tests.models.question_answering import tiny_question_answerer
from tests.models.tasks import tiny_preprocessor, tiny_task
from tests.models.test_data import Column, PyDataset, Series
from tests.models.tiny import (
    TEXTS,
    random_inputs,
    random_masked_inputs,
    randomize_weights,
    tiny_backbone,
)

pytestmark = pytest.mark.any_backend
losses = keras.losses
SPARSE = losses.SparseCategoricalCrossentropy
SOFTMAX, SIGMOID = {"activation": "softmax"}, {"activation": "sigmoid"}
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

NAME_OF_A_TEXT = {
    "list": LABELS,
    "unicode": np.array(LABELS),
    "bytes": [label.encode() for label in LABELS],
    "objects": np.array(LABELS, dtype=object),
    "column": np.array(LABELS)[:, None],
    "Hugging Face": Column(LABELS),
    "pandas": Series(LABELS),
}
PADDED = np.array([[*labels, "", "", ""][:3] for labels in SETS])
NAMES_OF_A_TEXT = {
    "lists": SETS,
    "tuples and sets": [("joy", "fear"), set(), {"anger"}, *SETS[3:]],
    "array of lists": np.array(SETS, dtype=object),
    "padded": PADDED,
    "padded bytes": PADDED.astype("S"),
    "column of lists": Series(SETS),
    "integers": ROWS,
    "booleans": ROWS.astype("bool"),
    "floats": ROWS.astype("float32").tolist(),
}


@pytest.mark.parametrize("kind", [*NAME_OF_A_TEXT, *NAMES_OF_A_TEXT])
def test_names_are_labels(named, topics, kind):
    model, numbers, labels = (
        (named, IDS, NAME_OF_A_TEXT[kind])
        if kind in NAME_OF_A_TEXT
        else (topics, ROWS.astype("float32"), NAMES_OF_A_TEXT[kind])
    )
    expected = model.evaluate(TEXTS, numbers, verbose=0)
    assert model.evaluate(TEXTS, labels, batch_size=2, verbose=0) == pytest.approx(expected)


def test_names_without_a_preprocessor():
    model = classifier(preprocessor=None)
    inputs = random_inputs(np.random.default_rng(3), batch_size=5)
    expected = model.evaluate(inputs, IDS, verbose=0)
    assert model.evaluate(inputs, LABELS, verbose=0) == pytest.approx(expected)
    history = model.fit(inputs, LABELS, validation_data=(inputs, LABELS), verbose=0).history
    assert history["loss"] == pytest.approx(expected[:1])


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
    model.evaluate(TEXTS, LABELS, verbose=0)
    np.testing.assert_array_equal(received[-1].ravel(), IDS)


# === Arguments ===


ARGUMENTS = {
    "nothing": ({}, "needs `num_classes` or `class_names`"),
    "other number": ({"class_names": ["a", "b"], "num_classes": 3}, r"\['a', 'b'\], num_classes=3"),
    "same names": ({"class_names": ["a", "b", "a"]}, r"different.*\['a', 'b', 'a'\]"),
    "no string": ({"class_names": ["a", None]}, r"nonempty strings.*\['a', None\]"),
    "a string": ({"class_names": "ab"}, "Received: class_names='ab'"),
    "several labels of one": ({"num_classes": 1, "multi_label": True}, "at least 2.*label=True"),
    "several labels, one sum": (
        {"num_classes": 3, "multi_label": True, **SOFTMAX},
        "needs activation=None or 'sigmoid'.*activation='softmax'",
    ),
    "always 1": ({"num_classes": 1, **SOFTMAX}, "a softmax need.*num_classes=1"),
}


@pytest.mark.parametrize("arguments, message", ARGUMENTS.values(), ids=list(ARGUMENTS))
def test_arguments_that_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        DietBertTextClassifier(tiny_backbone(num_layers=1), **arguments)


def test_new_heads_of_presets_have_other_names(tmp_path):
    of_topics().save_to_preset(tmp_path)
    load = DietBertTextClassifier.from_preset
    new_head = load(tmp_path, num_classes=7, class_names=None)
    assert (new_head.multi_label, new_head.class_names) == (True, None)
    assert load(tmp_path, num_classes=2, class_names=["a", "b"]).class_names == ["a", "b"]


# === Refused labels ===


def of_seven():
    return tiny_task("classifier")


def with_loss(loss):
    """A function that makes a classifier of seven classes."""

    def make():
        model = of_seven()
        model.compile(loss=loss, metrics=[])
        return model

    return make


IGNORING = with_loss(SPARSE(from_logits=True, ignore_class=-1))
DENSE = with_loss(losses.CategoricalCrossentropy(from_logits=True))
NAMED = with_loss("sparse_categorical_crossentropy")
FUNCTION = with_loss(losses.sparse_categorical_crossentropy)
IN_RANGE = [6, 2, 0, 3, 1]
ONE_HOT = r"one for each output.*y.shape={}. Pass `y.argmax.*CategoricalCrossentropy.*logits={}"
# A model, labels and a message, and perhaps weights.
WRONG = {
    "too large": (of_seven, [6, 7, 0, 1, 2], r"\[0, 7\).*from 0 to 7"),
    "negative under a named loss": (NAMED, [-1, 2, 0, 1, 2], "from -1 to 2"),
    "negative under a function": (FUNCTION, [-1, 2, 0, 1, 2], "from -1 to 2"),
    "not ignored": (IGNORING, [-1, -2, 0, 1, 2], "from -2 to 2"),
    "text": (of_seven, LABELS, "`y` must be numbers.*`class_names`"),
    "classes of a dense loss": (DENSE, IN_RANGE, r"\(None, 7\).*shape=\(5,\).*need a sparse loss"),
    "one-hot rows": (of_seven, np.eye(7)[IN_RANGE], ONE_HOT.format(r"\(5, 7\)", True)),
    "one-hot rows of probabilities": (NAMED, np.eye(7)[IN_RANGE], ONE_HOT.format(r".*", False)),
    "broadcast": (regression, np.ones((5, 3)), r"y.shape=\(5, 3\)"),
    "NaN": (regression, [1, 2, np.nan, 0, 0], "nan in row 2"),
    "unknown name": (classifier, [*LABELS[:3], "Bad", "bad"], "'Bad' in row 3. The names are"),
    "number beside names": (classifier, [1, *LABELS[1:]], "Received: 1 in row 0. The names are"),
    "no name": (classifier, [*LABELS[:4], np.nan], "Received: nan in row 4. The names are"),
    "one name for each text": (of_topics, ["joy"] * 5, "list of names for each text.*in row 0"),
    "two": (of_topics, 2 * ROWS, r"in \[0, 1\].*from 0 to 2"),
    "minus one": (of_topics, ROWS - 1, "from -1 to 0"),
    "NaN as weight": (of_seven, IN_RANGE, "finite numbers.*nan in row 3", [1, 2, 3, np.nan, 1]),
    "weights of classes": (of_seven, IN_RANGE, "one weight for each label", np.ones((5, 7))),
}


@pytest.mark.parametrize("case", WRONG)
def test_refused_labels(case):
    make, labels, message, *weights = WRONG[case]
    model, data = make(), (TEXTS, labels, *weights)
    sample_weight = weights[0] if weights else None
    for call in (
        lambda: model.fit(TEXTS, labels, sample_weight=sample_weight, verbose=0),
        lambda: model.evaluate(TEXTS, labels, sample_weight=sample_weight, verbose=0),
        lambda: model.evaluate(iter([data]), verbose=0),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_refused_one_hot_rows_of_tokens(rng):
    inputs, labels, weights = random_masked_inputs(rng)
    model = tiny_task("masked_lm", with_preprocessor=False)
    with pytest.raises(ValueError, match=ONE_HOT.format(r"\(2, 5, 31\)", True)):
        model.fit(inputs, np.eye(31)[labels], sample_weight=weights)
    with pytest.raises(ValueError, match=r"one value for each word, and no one-hot.*\[0, 1\]"):
        tiny_task("token_classifier").fit([["the", "fox"]], [[[1, 0], [0, 1]]])


def test_labels_that_are_accepted():
    IGNORING().evaluate(TEXTS, [-1, 2, 0, 1, 2], verbose=0)
    DENSE().evaluate(TEXTS, np.full((5, 7), 1 / 7), verbose=0)
    model = regression()
    model.evaluate(TEXTS, np.array([[-3.5], [7.0], [0], [1], [2]]), verbose=0)

    def masked_error(y, outputs):
        value, weight = y[:, :1], y[:, 1:]
        return keras.ops.where(keras.ops.isnan(value), 0.0, weight * (outputs - value) ** 2)

    # A custom loss may take other labels.
    model.compile(loss=masked_error, metrics=[])
    y = np.array([[1, 2], [np.nan, 1], [0.5, 1], [0, 3], [1.5, 1]], "float32")
    assert np.isfinite(model.fit(TEXTS, y, verbose=0).history["loss"]).all()


def test_only_labels_that_fit_become_narrow():
    found = [numbers_of(values, "y") for values in ([3, 7], [3, 2**31 + 7], [-(2**31) - 1, 0])]
    assert [array.dtype for array in found] == ["int32", "int64", "int64"]
    assert [array.tolist() for array in found[1:]] == [[3, 2147483655], [-2147483649, 0]]


def test_labels_of_several_outputs():
    rng = np.random.default_rng(3)
    task = randomize_weights(tiny_question_answerer(with_preprocessor=False))
    # The first place may always be an answer.
    inputs, labels = random_inputs(rng, 5), dict.fromkeys(("start", "end"), np.zeros(5, "int32"))
    weights = dict.fromkeys(labels, np.array([0.0, 3.0, 0.5, 0.0, 1.0]))
    task.compile(keras.optimizers.SGD(0.0))
    history = task.fit(inputs, labels, validation_data=(inputs, labels, weights), verbose=0).history
    expected = task.evaluate(inputs, labels, sample_weight=weights, return_dict=True, verbose=0)
    assert history["val_loss"][0] == pytest.approx(expected["loss"], rel=1e-5)
    assert history["val_loss"][0] != pytest.approx(history["loss"][0], rel=1e-2)
    with pytest.raises(ValueError, match=r"\[0, max_sequence_length\) = \[0, 13\)"):
        task.fit(inputs, {**labels, "end": labels["end"] + 13})
    with pytest.raises(ValueError, match=r"'start', 'end'.*the keys..'third'"):
        task.fit(inputs, {"third": labels["start"]})


def test_what_belongs_to_an_output():
    values = {"first": 1, "second": 2}
    assert [of_output(values, name) for name in ("first", "second", "third")] == [1, 2, None]
    assert of_output([3], None) == of_output(3, "first") == 3


# === Weights of classes ===


# The classes 2, 0, 1, 0, 2 and 2 have 3, 2 and 1 of 6 examples.
SIX = ([*TEXTS, TEXTS[0]], [*LABELS, "bad"])
BALANCED = {0: 1.0, 1: 2.0, 2: 2 / 3}
CLASS_WEIGHTS = {
    "a name and an index": ({"bad": 3.0, 0: 0.5}, {0: 0.5, 2: 3.0}),
    "list": ([0.5, 1.0, 3.0], {0: 0.5, 2: 3.0}),
    "array": (np.array([0.5, 1.0, 3.0]), {0: 0.5, 2: 3.0}),
    "column of pandas": (Series([0.5, 1.0, 3.0]), {0: 0.5, 2: 3.0}),
    "balanced": ("balanced", BALANCED),
}


@pytest.mark.parametrize("weights, expected", CLASS_WEIGHTS.values(), ids=list(CLASS_WEIGHTS))
@pytest.mark.parametrize("method", ["fit", "train_on_batch"])
def test_class_weights_may_be_a_list_or_computed(named, weights, expected, method):
    named.compile(keras.optimizers.SGD(0.0))
    one, other = (getattr(named, method)(*SIX, class_weight=each) for each in (weights, expected))
    if method == "fit":
        one, other = one.history["loss"], other.history["loss"]
    assert one == pytest.approx(other)
    assert named.class_weight_of(weights, SIX[1]) == pytest.approx({1: 1.0} | expected)


BALANCED_LABELS = {
    "names": SIX[1],
    "integers": [2, 0, 1, 0, 2, 2],
    "column": np.array([2, 0, 1, 0, 2, 2])[:, None],
    "one-hot rows": np.eye(3)[[2, 0, 1, 0, 2, 2]],
}


@pytest.mark.parametrize("y", BALANCED_LABELS.values(), ids=list(BALANCED_LABELS))
def test_balanced_weights_count_labels_of_each_form(named, y):
    assert named.class_weight_of("balanced", y) == pytest.approx(BALANCED)


def test_balanced_weights_are_of_the_examples_that_train(named, tmp_path):
    """Those that are held out for validation do not count, and a missing class neither."""
    named.compile(keras.optimizers.SGD(0.0))
    texts, labels = SIX
    split = {"validation_split": 0.5, "verbose": 0}
    found = [
        named.fit(texts, labels, class_weight="balanced", **split),
        ExactResume(tmp_path, 5).fit(named, texts, labels, class_weight="balanced", **split),
        named.fit(texts, labels, class_weight=[1.0, 1.0, 1.0], **split),
    ]
    losses = [history.history["loss"][0] for history in found]
    assert losses[0] == pytest.approx(losses[1]) == pytest.approx(losses[2])
    assert named.class_weight_of("balanced", labels[:1] + labels[4:]) == {0: 1, 1: 1, 2: 1}


def test_one_output_has_weights_of_two_classes():
    model = classifier(None, num_classes=1, activation="sigmoid")
    model.compile(keras.optimizers.SGD(0.0), losses.BinaryCrossentropy())
    labels = np.array([0, 1, 1, 0, 1])
    weights = np.where(labels, 3.0, 0.5)
    by_class = model.fit(TEXTS, labels, class_weight={0: 0.5, 1: 3.0}, verbose=0).history
    by_row = model.fit(TEXTS, labels, sample_weight=weights, verbose=0).history
    assert by_class["loss"] == pytest.approx(by_row["loss"])


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_a_column_of_weights_has_one_axis(shape):
    """As labels: a compiled step of TensorFlow takes weights of one rank."""
    weights = np.array([0.5, 2.0, 0.0, 1.0, 3.0], "float32")
    found = checked_weights(weights.reshape(shape), (None, 3))
    assert found.shape == (5,)
    np.testing.assert_array_equal(found, weights)


EACH = "with one class each"
REFUSED_WEIGHTS = [
    ({"Bad": 2.0}, EACH),
    ({3: 1.0}, EACH),
    ({-1: 1.0}, EACH),
    ([1.0, 2.0], r"each of 3 classes. Received: class_weight=\[1.0, 2.0\]"),
    ("balance", "or 'balanced' for labels .*class_weight='balance'"),
]


@pytest.mark.parametrize("weights, message", REFUSED_WEIGHTS)
def test_refused_class_weights(named, weights, message):
    with pytest.raises(ValueError, match=f"`class_weight` must .*{message}"):
        named.fit(TEXTS, LABELS, class_weight=weights)


def test_refused_balanced_weights(named, topics):
    with pytest.raises(ValueError, match=r"'balanced' for labels .*y=NoneType"):
        named.fit(PyDataset([(TEXTS, LABELS)]), class_weight="balanced")
    with pytest.raises(ValueError, match=EACH):
        topics.fit(TEXTS, SETS, class_weight="balanced")


# === Losses ===


# A part of the warning, by task. The classifier with an activation returns probabilities.
LOGITS = "takes probabilities here.* returns logits. Compile with `from_logits=True`"
RETURNS = {
    "classifier": LOGITS,
    "masked_lm": LOGITS,
    "embedder": "takes probabilities here.* returns embeddings. Compile with `from_logits=False`",
    "softmax": "takes logits here.* returns probabilities. Compile with `from_logits=False`",
}
# A task, its loss and arguments. And the name of the loss in a warning, if there is one.
LOSSES = [
    ("classifier", {"logits": SPARSE()}, {}, "SparseCategoricalCrossentropy"),
    ("classifier", losses.categorical_crossentropy, {}, "categorical_crossentropy"),
    ("classifier", "kl_divergence", {}, "kl_divergence"),
    ("classifier", SPARSE(from_logits=True), SOFTMAX, "SparseCategoricalCrossentropy"),
    ("masked_lm", "sparse_categorical_crossentropy", {}, "sparse_categorical_crossentropy"),
    ("embedder", "binary_crossentropy", {}, "binary_crossentropy"),
    ("classifier", "auto", SOFTMAX, None),
    ("classifier", "auto", {**SIGMOID, "multi_label": True}, None),
    ("classifier", lambda y, outputs: outputs[:, 0], {}, None),
    ("classifier", "mse", {}, None),
    ("classifier", SPARSE(), {"activation": "relu"}, None),
    ("embedder", losses.BinaryCrossentropy(from_logits=True), {}, None),
]


@pytest.mark.parametrize("kind, loss, arguments, name", LOSSES)
def test_losses_that_do_not_fit_the_outputs_give_a_warning(kind, loss, arguments, name):
    if kind == "classifier":
        arguments = {"num_classes": 3, "compile": False, **arguments}
        task = DietBertTextClassifier(tiny_backbone(num_layers=1), **arguments)
    else:
        task = tiny_task(kind, with_preprocessor=False, compile=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        task.compile(loss=loss)
    found = [str(warning.message) for warning in caught]
    assert len(found) == (name is not None)
    if found:
        assert re.search(f"`{name}` {RETURNS[arguments.get('activation', kind)]}", found[0])
