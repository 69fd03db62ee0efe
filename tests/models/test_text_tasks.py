"""Classifier, masked LM and embedder: their heads, losses, training and methods."""

from unittest import mock

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet.models import DietBertTextClassifier, DietBertTextEmbedder
from tests.helpers import (
    assert_all_close,
    assert_close,
    every_backend,
    gradients,
    once,
    to_numpy,
    weighted_sum,
)
from tests.models.tasks import tiny_preprocessor, tiny_task
from tests.models.tiny import (
    SIZES,
    TEXTS,
    VOCABULARY,
    random_inputs,
    randomize_weights,
    tiny_backbone,
)

pytestmark = pytest.mark.any_backend
SECOND = TEXTS[1:] + TEXTS[:1]
NAMES = ["neutral", "très bon", "bad"]


def ready(task, **arguments):
    return randomize_weights(tiny_task(task, with_preprocessor=False, **arguments))


def with_texts(task, **arguments):
    return randomize_weights(tiny_task(task, **arguments))


def classifier(num_classes=None, class_names=None, backbone=None, preprocessor="tiny", **arguments):
    if preprocessor == "tiny":
        preprocessor = tiny_preprocessor("classifier")
    backbone = tiny_backbone(num_layers=1) if backbone is None else backbone
    return randomize_weights(
        DietBertTextClassifier(
            backbone, num_classes, preprocessor, class_names=class_names, **arguments
        ),
        seed=6,
    )


# === Heads: `test_trained_encoders.py` has their outputs, beside those of other libraries ===


def test_the_head_of_masks_is_berts():
    bert = keras_hub.models.BertMaskedLM(keras_hub.models.BertBackbone(**SIZES))
    ours, berts = (
        model.get_layer("mlm_head").get_config() for model in (tiny_task("masked_lm"), bert)
    )
    for name in ("intermediate_activation", "layer_norm_epsilon"):
        assert ours[name] == berts[name]


def test_arguments_survive_the_configuration():
    backbone = tiny_backbone(num_layers=1)
    arguments = {"class_names": NAMES, "multi_label": True, "activation": "sigmoid", "dropout": 0.3}
    config = DietBertTextClassifier(backbone, **arguments).get_config()
    copy = DietBertTextClassifier.from_config(config)
    assert (copy.class_names, copy.multi_label, copy.output_dropout.rate) == (NAMES, True, 0.3)
    assert copy.activation is keras.activations.sigmoid
    embedder = DietBertTextEmbedder(backbone, pooling_mode="max", normalize=False)
    copy = DietBertTextEmbedder.from_config(embedder.get_config())
    assert (copy.pooling_mode, copy.normalize) == ("max", False)


def test_dropout_before_the_head_is_active_in_training_only(rng):
    model = randomize_weights(DietBertTextClassifier(tiny_backbone(num_layers=1), 7, dropout=0.5))
    inputs = random_inputs(rng)
    first, second = (to_numpy(model(inputs, training=True)) for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    assert_close(model(inputs), model(inputs, training=False))


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_embeddings_in_half_precision(rng, dtype):
    """Sums over the tokens are in float32: 13 times 10,000 is infinite in float16."""
    embedder = ready("embedder", dtype=dtype)
    last_norm = embedder.backbone.encoder.transformer_layers[-1].feedforward_layer_norm
    last_norm.gamma.assign(10_000 + 0 * to_numpy(last_norm.gamma))
    outputs = embedder(random_inputs(rng))
    assert keras.backend.standardize_dtype(outputs.dtype) == embedder.backbone.compute_dtype
    assert_close(np.linalg.norm(to_numpy(outputs), axis=-1), np.ones(2), 1e-2)


# === Losses ===


SEVERAL = np.array([[0, 1, 1, 0], [1, 0, 0, 1]])
VALUES = np.array([0.7, -1.3], "float32")
SIGMOID = {"num_classes": 4, "multi_label": True, "activation": "sigmoid"}


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def of_classes(logits):
    loss = -np.log(softmax(logits)[[0, 1], [6, 2]]).mean()
    return loss, (logits.argmax(-1) == [6, 2]).mean()


def of_several_labels(logits):
    p = sigmoid(logits)
    return -np.where(SEVERAL, np.log(p), np.log(1 - p)).mean(), ((p > 0.5) == SEVERAL).mean()


def of_values(logits):
    error = ((logits[:, 0] - VALUES) ** 2).mean()
    return error, error**0.5


@every_backend
@pytest.mark.parametrize(
    ("arguments", "labels", "expected"),
    [
        ({"num_classes": 7}, np.array([6, 2]), of_classes),
        *once(
            # KerasHub 0.32 takes the first loss of a softmax from logits.
            ({"num_classes": 7, "activation": "softmax"}, np.array([6, 2]), of_classes),
            ({"num_classes": 4, "multi_label": True}, SEVERAL, of_several_labels),
            (SIGMOID, SEVERAL, of_several_labels),
            ({"num_classes": 1}, VALUES, of_values),
            ({"num_classes": 1}, VALUES[:, None], of_values),
        ),
    ],
)
def test_default_losses_and_metrics(rng, arguments, labels, expected):
    model = classifier(**arguments, preprocessor=None)
    plain = classifier(**{**arguments, "activation": None}, preprocessor=None)
    inputs = random_inputs(rng)
    values = expected(to_numpy(plain(inputs)).astype("float64"))
    assert model.evaluate(inputs, labels, verbose=0) == pytest.approx(values, rel=1e-4)


def test_metrics_of_other_losses(rng):
    dense = keras.losses.CategoricalCrossentropy(from_logits=True)
    for number, loss, labels, names in (
        (1, "mae", VALUES, {"loss"}),
        (2, dense, np.eye(2), {"loss", "categorical_accuracy"}),
    ):
        model = classifier(number, preprocessor=None)
        model.compile(loss=loss)
        results = model.evaluate(random_inputs(rng), labels, verbose=0, return_dict=True)
        assert set(results) == names


# === `classify` ===


def probabilities(model, x):
    logits = model.predict(x, verbose=0).astype("float64")
    return sigmoid(logits) if model.multi_label else softmax(logits)


def assert_results(results, p, labels):
    for found, of_text in zip(results, p, strict=True):
        order = np.argsort(-of_text)[: len(found)]
        assert [entry["label"] for entry in found] == [labels[i] for i in order]
        assert all(type(entry["probability"]) is float for entry in found)
        np.testing.assert_allclose([e["probability"] for e in found], of_text[order], rtol=1e-4)


@pytest.mark.parametrize("names", [NAMES, None], ids=["names", "numbers"])
def test_classify(names):
    model = classifier(3, names)
    p, labels = probabilities(model, TEXTS), names or range(3)
    assert len(set(p.argmax(-1))) > 1
    for number in (3, 2):
        results = model.classify(TEXTS, batch_size=2, top_k=number)
        assert [len(found) for found in results] == [number] * 5
        assert_results(results, p, labels)
    one = [model.classify(TEXTS[1]), *model.classify(np.array(TEXTS[1:2]))]
    assert_results(one, p[[1, 1]], labels)
    pairs = probabilities(model, (TEXTS, SECOND))
    assert_results([model.classify((TEXTS[2], SECOND[2]))], pairs[2:3], labels)


def test_classify_several_labels_above_a_threshold():
    model = classifier(4, multi_label=True)
    p = probabilities(model, TEXTS)
    results = model.classify(TEXTS)
    assert_results(results, p, range(4))
    threshold = float(np.median(p))
    above = model.classify(TEXTS, threshold=threshold)
    assert above == [[e for e in found if e["probability"] >= threshold] for found in results]
    assert 0 < sum(map(len, above)) < 20
    # A probability that equals the threshold counts.
    second = results[3][1]["probability"]
    assert model.classify(TEXTS, threshold=second)[3] == results[3][:2]
    assert model.classify(TEXTS, top_k=1, threshold=threshold) == [found[:1] for found in above]
    assert model.classify(TEXTS[2], threshold=1.0) == []


def test_classify_other_outputs(rng):
    half = classifier(3, backbone=tiny_backbone(num_layers=1, dtype="mixed_bfloat16"))
    for found in half.classify(TEXTS):
        assert sum(entry["probability"] for entry in found) == pytest.approx(1, abs=1e-6)
    logits = classifier(3, preprocessor=None)
    softmax = classifier(3, preprocessor=None, activation="softmax")
    inputs = random_inputs(rng)
    assert_results(softmax.classify(inputs), probabilities(logits, inputs), range(3))


REFUSED = {
    "regression": (lambda: classifier(1).classify(TEXTS), "at least two classes"),
    "none": (lambda: classifier(3).classify(TEXTS, top_k=0), "`top_k` must be a positive"),
    "threshold": (lambda: classifier(3).classify(TEXTS, threshold=1.5), "`threshold`"),
    "relu": (
        lambda: classifier(3, activation="relu").classify(TEXTS),
        "needs activation=None or 'softmax'. Received: activation='relu'",
    ),
    "no mask": (
        lambda: tiny_task("masked_lm").fill_mask(["a [MASK]", "a fox"]),
        r"contain `\[MASK\]`.*0 masks in row 1, 'a fox'",
    ),
    "too long": (
        lambda: tiny_task("masked_lm").fill_mask("the [MASK] " * 6),
        "sequence_length=13 tokens.*14 tokens and 6 masks in row 0",
    ),
    "no preprocessor": (lambda: ready("masked_lm").fill_mask("[MASK]"), "needs a preprocessor"),
}


@pytest.mark.parametrize("call, message", REFUSED.values(), ids=list(REFUSED))
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# === `fill_mask` ===


@pytest.mark.parametrize("vocabulary_size", [31, 37])
def test_fill_mask(vocabulary_size):
    """A larger backbone has tokens that the tokenizer does not know."""
    model = with_texts("masked_lm", vocabulary_size=vocabulary_size)
    ids = [2, 5, 4, 9, 4, 3]  # [CLS] the [MASK] fox [MASK] [SEP]
    inputs = {
        "token_ids": np.array([ids]),
        "segment_ids": np.zeros((1, 6)),
        "padding_mask": np.ones((1, 6)),
        "mask_positions": np.array([[2, 4]]),
    }
    p = softmax(to_numpy(model(inputs))[0].astype("float64"))
    single, (first, second) = model.fill_mask(["a [MASK]", "the [MASK] fox [MASK]"], top_k=31)
    for found, expected in zip((first, second), p, strict=True):
        best = np.argsort(-expected[:31])
        assert [entry["token"] for entry in found] == [VOCABULARY[i] for i in best]
        found_p = [entry["probability"] for entry in found]
        np.testing.assert_allclose(found_p, expected[best], rtol=1e-4)
    # A token that continues a word is attached to it.
    for found, before, after in (
        (single, "a", ""),
        (first, "the", " fox [MASK]"),
        (second, "the [MASK] fox", ""),
    ):
        texts = {entry["token"]: entry["text"] for entry in found}
        assert texts["fox"] == f"{before} fox{after}"
        assert texts["##es"] == f"{before}es{after}"
    best = model.fill_mask("the [MASK] fox [MASK]", top_k=3)
    assert [[e["token"] for e in found] for found in best] == [
        [e["token"] for e in found[:3]] for found in (first, second)
    ]
    assert model.fill_mask("a [MASK]", top_k=99) == model.fill_mask("a [MASK]", top_k=31)


def test_fill_mask_pads_to_the_shortest_bucket():
    model = with_texts("masked_lm")
    expected = model.fill_mask("the [MASK] fox [MASK]", top_k=4)
    model.preprocessor = tiny_preprocessor("masked_lm", length_buckets=(5, 7))
    with mock.patch.object(model, "infer", wraps=model.infer) as infer:
        found = model.fill_mask("the [MASK] fox [MASK]", top_k=4)
        model.fill_mask("a [MASK]")
        assert len(model.fill_mask("[MASK] [MASK] [MASK]")) == 3
    seen = [call.args[0] for call in infer.call_args_list]
    shapes = [(x["token_ids"].shape[1], x["mask_positions"].shape[1]) for x in seen]
    # XLA is slow with one mask.
    assert shapes == [(7, 2), (5, 2), (5, 4)]
    for of_mask, others in zip(found, expected, strict=True):
        assert [each["token"] for each in of_mask] == [each["token"] for each in others]


# === Embeddings ===


def test_documents_and_similarities():
    embedder = with_texts("embedder")
    expected = embedder.predict(TEXTS[:3], verbose=0)
    assert_close(embedder.encode_documents(TEXTS[1], verbose=0), expected[1:2])
    assert_close(embedder.similarity(expected[:1], expected), expected[:1] @ expected.T)


@every_backend
@pytest.mark.parametrize("pooling_mode", ["max", *once("mean", "cls")])
def test_a_row_of_padding_without_weight_changes_no_gradient(rng, pooling_mode):
    model = randomize_weights(DietBertTextEmbedder(tiny_backbone(), pooling_mode=pooling_mode))
    inputs = random_inputs(rng, batch_size=3, length=7)
    inputs["padding_mask"][0] = 0
    weights = np.array([[0.0], [1.5], [0.5]]) * rng.normal(size=(3, 15)).astype("float32")

    def gradients_of(rows):
        batch = {name: array[rows] for name, array in inputs.items()}
        return gradients(lambda: weighted_sum(model(batch), weights[rows]), model.weights)

    assert_all_close(gradients_of(slice(3)), gradients_of(slice(1, 3)))
    if pooling_mode != "cls":
        # A text of nothing but padding.
        assert_close(model(inputs)[0], np.zeros(15))
