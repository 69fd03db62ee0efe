"""`class_names` of `DietBertTextClassifier`: labels that are names, `classify`, and files."""

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet import layers
from keras_diet.models import DietBertTextClassifier
from tests.helpers import to_numpy
from tests.models.tasks import tiny_preprocessor
from tests.models.test_malformed_inputs import Column
from tests.models.tiny import TEXTS, random_inputs, randomize_weights, tiny_backbone

NAMES = ["neutral", "très bon", "bad"]
LABELS = ["bad", "neutral", "très bon", "neutral", "bad"]
IDS = np.array([2, 0, 1, 0, 2])
SECOND = TEXTS[1:] + TEXTS[:1]


def tiny_classifier(class_names=NAMES, preprocessor="tiny", backbone=None, **arguments):
    if preprocessor == "tiny":
        preprocessor = tiny_preprocessor("classifier")
    return randomize_weights(
        DietBertTextClassifier(
            backbone or tiny_backbone(num_layers=1),
            preprocessor=preprocessor,
            class_names=class_names,
            **{"dropout": 0.0, **arguments},
        ),
        seed=6,
    )


@pytest.fixture(scope="module")
def classifier():
    return tiny_classifier()


# === Labels ===

KINDS = {
    "list": LABELS,
    "unicode": np.array(LABELS),
    "bytes": np.array([label.encode() for label in LABELS]),
    "objects": np.array(LABELS, dtype=object),
    "column": np.array(LABELS)[:, None],
    "pandas": Column(LABELS, "O"),
    "integers": IDS,
}


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_labels(classifier, kind):
    expected = classifier.evaluate(TEXTS, IDS.tolist(), verbose=0)
    labels = KINDS[kind]
    assert classifier.evaluate(TEXTS, labels, batch_size=5, verbose=0) == pytest.approx(expected)
    assert classifier.test_on_batch(TEXTS, labels) == pytest.approx(expected)


@pytest.mark.any_backend
def test_training_with_names():
    def trained(labels):
        model = tiny_classifier()
        losses = [model.train_on_batch(TEXTS, labels)[0]]
        history = model.fit(
            TEXTS, labels, validation_data=(TEXTS, labels), batch_size=5, verbose=0
        ).history
        return [*losses, *history["loss"], *history["val_loss"]]

    assert trained(LABELS) == pytest.approx(trained(IDS), rel=1e-5)
    assert trained(LABELS) != pytest.approx(trained((IDS + 1) % 3), rel=1e-3)


@pytest.mark.parametrize("library", ["tf.data", "grain"])
def test_names_in_datasets(classifier, library):
    def batches(labels, size):
        if library == "grain":
            grain = pytest.importorskip("grain")
            return grain.MapDataset.source(list(zip(TEXTS, labels, strict=True))).batch(size)
        tf = pytest.importorskip("tensorflow")
        return tf.data.Dataset.from_tensor_slices((TEXTS, list(labels))).batch(size)

    expected = classifier.evaluate(TEXTS, IDS, verbose=0)
    assert classifier.evaluate(batches(LABELS, 5), verbose=0) == pytest.approx(expected)
    with pytest.raises(Exception, match=r"names of classes.*good\W+in row\W+1"):
        # On JAX, Keras leaves a model without weights if an epoch fails.
        tiny_classifier().evaluate(batches([*LABELS[:4], "good"], 3), verbose=0)


def test_names_without_a_preprocessor(rng):
    model = tiny_classifier(preprocessor=None)
    inputs = random_inputs(rng, batch_size=5)
    expected = model.evaluate(inputs, IDS, verbose=0)
    assert model.evaluate(inputs, LABELS, verbose=0) == pytest.approx(expected)


@pytest.mark.any_backend
def test_names_under_a_dense_loss():
    tf = pytest.importorskip("tensorflow")
    model = tiny_classifier()
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.2)
    model.compile(loss=loss, metrics=["categorical_accuracy"])
    expected = model.evaluate(TEXTS, np.eye(3)[IDS], verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(5)
    assert model.evaluate(TEXTS, LABELS, verbose=0) == pytest.approx(expected)
    assert model.evaluate(dataset, verbose=0) == pytest.approx(expected)


@pytest.mark.any_backend
def test_names_under_a_custom_loss():
    model = tiny_classifier()
    received = []

    def loss(y, outputs):
        received.append(to_numpy(y))
        return outputs[:, 0]

    model.compile(loss=loss, metrics=[], run_eagerly=True)
    model.test_on_batch(TEXTS, LABELS)
    np.testing.assert_array_equal(received[-1].ravel(), IDS)


@pytest.mark.parametrize(
    ("position", "label", "shown"),
    [(3, "Bad", "'Bad' in row 3"), (4, None, "None in row 4"), (0, 1, "1 in row 0")],
)
def test_unknown_labels(classifier, position, label, shown):
    labels = list(LABELS)
    labels[position] = label
    message = f"Received: {shown}. The names are 'neutral', 'très bon', 'bad'"
    for y in (labels, np.array(labels, dtype=object), Column(labels, "O")):
        for call in (
            lambda y=y: classifier.fit(TEXTS, y),
            lambda y=y: classifier.evaluate(TEXTS, y),
            lambda y=y: classifier.fit(TEXTS, LABELS, validation_data=(TEXTS, y)),
            lambda y=y: classifier.train_on_batch(TEXTS, y),
            lambda y=y: classifier.test_on_batch(TEXTS, y),
        ):
            with pytest.raises(ValueError, match=message):
                call()


@pytest.mark.any_backend
def test_several_names_for_a_text(classifier):
    pairs = np.array([LABELS, LABELS]).T
    with pytest.raises(ValueError, match=r"one integer for each example.*shape=\(5, 2\)"):
        classifier.evaluate(TEXTS, pairs, verbose=0)
    with pytest.raises(ValueError, match="'' in row 1"):
        classifier.evaluate(TEXTS, ["bad", "", *LABELS[2:]], verbose=0)


@pytest.mark.any_backend
def test_many_names_are_not_all_shown():
    names = [f"class {i}" for i in range(23)]
    model = tiny_classifier(names)
    with pytest.raises(ValueError, match=r"'class 9', ... \(23 in all\)"):
        model.evaluate(TEXTS, ["class 23"] * 5, verbose=0)
    assert model.evaluate(TEXTS, ["class 22"] * 5, verbose=0)


# === Arguments ===


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("class_names", "num_classes", "message"),
    [
        (None, None, "`num_classes` or `class_names` must be given"),
        (["a", "b", "a"], None, r"different.*\['a', 'b', 'a'\]"),
        (["a", "b"], 3, "Received: num_classes=3 and 2 names"),
        (["a", "b"], 2.0, "`num_classes` must be a positive integer"),
        (["a", 1], None, "Received: 1 in class_names"),
        (["a", ""], None, "Received: '' in class_names"),
        (["a", None], None, "Received: None in class_names"),
        ([], None, r"Received: class_names=\[\]"),
        (["a"], None, r"at least two.*Received: class_names=\['a'\]"),
        ("ab", None, "Received: class_names='ab'"),
        ({"a": 0, "b": 1}, None, "Received: class_names={'a': 0"),
        pytest.param({"a", "b"}, None, "must be a list", id="set"),
    ],
    ids=str,
)
def test_refused_names(class_names, num_classes, message):
    with pytest.raises(ValueError, match=message):
        DietBertTextClassifier(tiny_backbone(), num_classes, class_names=class_names)


@pytest.mark.any_backend
@pytest.mark.parametrize("names", [tuple(NAMES), np.array(NAMES)], ids=["tuple", "array"])
def test_names_in_other_containers(names):
    model = tiny_classifier(names, num_classes=3)
    assert model.class_names == NAMES
    assert {type(name) for name in model.class_names} == {str}
    assert model.output.shape == (None, 3)
    assert tiny_classifier(None, num_classes=3).class_names is None


# === Classify ===


def expected_results(model, x):
    logits = model.predict(x, verbose=0).astype("float64")
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return [
        sorted(zip(-of_text, model.class_names or range(len(of_text)), strict=True))
        for of_text in probabilities
    ]


def assert_results(actual, expected):
    for result, (minus_probability, label) in zip(actual, expected, strict=True):
        assert set(result) == {"label", "probability"}
        assert result["label"] == label
        assert isinstance(result["probability"], float)
        assert result["probability"] == pytest.approx(-minus_probability, rel=1e-4)


@pytest.mark.parametrize("names", [NAMES, None], ids=["names", "numbers"])
def test_classify(names):
    model = tiny_classifier(names, num_classes=3)
    expected = expected_results(model, TEXTS)
    assert len({of_text[0][1] for of_text in expected}) > 1
    results = model.classify(TEXTS, batch_size=2)
    for actual, of_text in zip(results, expected, strict=True):
        assert_results(actual, of_text)
    best = model.classify(np.array(TEXTS), top_k=2)
    assert [len(of_text) for of_text in best] == [2] * 5
    assert_results(best[3], expected[3][:2])


def test_probabilities_of_half_precision_are_not_rounded():
    model = tiny_classifier(backbone=tiny_backbone(num_layers=1, dtype="mixed_bfloat16"))
    for actual, expected in zip(model.classify(TEXTS), expected_results(model, TEXTS), strict=True):
        assert_results(actual, expected)
        assert sum(result["probability"] for result in actual) == pytest.approx(1, abs=1e-6)


def test_classify_one_text_or_pair(classifier):
    assert_results(classifier.classify(TEXTS[1]), expected_results(classifier, TEXTS)[1])
    assert_results(classifier.classify([TEXTS[1]])[0], expected_results(classifier, TEXTS)[1])
    expected = expected_results(classifier, (TEXTS, SECOND))
    assert_results(classifier.classify((TEXTS[2], SECOND[2])), expected[2])
    assert_results(classifier.classify((TEXTS, SECOND), top_k=1)[4], expected[4][:1])


@pytest.mark.any_backend
def test_classify_probabilities_and_preprocessed_inputs(rng):
    inputs = random_inputs(rng)
    logits = tiny_classifier(preprocessor=None)
    probabilities = tiny_classifier(preprocessor=None, activation="softmax")
    for actual, expected in zip(
        probabilities.classify(inputs), expected_results(logits, inputs), strict=True
    ):
        assert_results(actual, expected)


@pytest.mark.any_backend
def test_refusals_of_classify(classifier):
    for top_k, message in (
        (0, "`top_k` must be a positive integer"),
        (4, "number of classes, 3. Received: top_k=4"),
    ):
        with pytest.raises(ValueError, match=message):
            classifier.classify(TEXTS, top_k=top_k)
    with pytest.raises(ValueError, match=r"`threshold` must be a number in \[0, 1\]"):
        classifier.classify(TEXTS, threshold=50)
    with pytest.raises(ValueError, match="None in row 1"):
        classifier.classify(["the fox", None])
    with pytest.raises(ValueError, match="num_classes=1, a regression"):
        tiny_classifier(None, num_classes=1).classify(TEXTS)
    with pytest.raises(ValueError, match=r"returns logits or probabilities.*'tanh'.*'softmax'"):
        tiny_classifier(activation="tanh").classify(TEXTS)


# === Files ===


@pytest.mark.any_backend
def test_keras_files_and_configurations_have_the_names(tmp_path, classifier):
    classifier.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.class_names == NAMES
    assert loaded.classify("the fox") == classifier.classify("the fox")
    copy = DietBertTextClassifier.from_config(classifier.get_config())
    assert copy.get_config() == classifier.get_config()
    # The classifier has been used before, so its preprocessor is built.
    assert layers.cache_positions(classifier).class_names == NAMES


@pytest.fixture(scope="module")
def preset(tmp_path_factory, classifier):
    folder = str(tmp_path_factory.mktemp("preset") / "classifier")
    classifier.save_to_preset(folder)
    return folder


LOADERS = pytest.mark.parametrize(
    "loader", [DietBertTextClassifier, keras_hub.models.TextClassifier]
)


@pytest.mark.any_backend
@LOADERS
def test_presets_have_the_names(preset, classifier, loader):
    loaded = loader.from_preset(preset)
    assert loaded.class_names == NAMES
    assert loaded.classify(TEXTS) == classifier.classify(TEXTS)


@pytest.mark.any_backend
@LOADERS
def test_new_heads_of_presets(preset, classifier, loader):
    def head_is_kept(task):
        return np.array_equal(task.weights[-2], classifier.weights[-2])

    for number in (2, 4):
        task = loader.from_preset(preset, num_classes=number)
        assert (task.class_names, task.num_classes) == (None, number)
    names = ["a", "b", "c", "d"]
    task = loader.from_preset(preset, num_classes=4, class_names=names)
    assert (task.class_names, task.num_classes) == (names, 4)
    task = loader.from_preset(preset, num_classes=3)
    # KerasHub does not tell given arguments from saved ones.
    assert task.class_names == (None if loader is DietBertTextClassifier else NAMES)
    assert not head_is_kept(task)
    task = loader.from_preset(preset, num_classes=3, class_names=names[:3])
    assert task.class_names == names[:3]
    assert not head_is_kept(task)
    task = loader.from_preset(preset, class_names=names[:3])
    assert task.class_names == names[:3]
    assert head_is_kept(task)
    with pytest.raises(ValueError, match=r"4 names.*For a new head, pass num_classes=4"):
        loader.from_preset(preset, class_names=names)


@pytest.mark.any_backend
def test_the_cause_of_an_error_in_the_head_is_told(tmp_path, classifier):
    folder = tmp_path / "preset"
    classifier.save_to_preset(folder)
    with pytest.raises(FileNotFoundError, match=r"missing\.weights\.h5"):
        classifier.load_task_weights(tmp_path / "missing.weights.h5")
    copy = DietBertTextClassifier.from_preset(folder)
    copy.output_dense.bias.assign([0.0, np.nan, 0.0])
    copy.save_task_weights(folder / "task.weights.h5")
    with pytest.raises(ValueError, match=r"must be finite\. Received: NaN"):
        DietBertTextClassifier.from_preset(folder)


@pytest.mark.any_backend
def test_names_for_the_preset_of_a_backbone(tmp_path):
    backbone = tiny_backbone(num_layers=1)
    backbone.save_to_preset(tmp_path)
    task = DietBertTextClassifier.from_preset(tmp_path, class_names=NAMES, preprocessor=None)
    assert (task.class_names, task.num_classes) == (NAMES, 3)
