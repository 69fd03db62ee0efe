"""Rerankers: losses of pairs and of lists, ranks, files, and sentence-transformers."""

import json

import keras
import keras_hub
import numpy as np
import pytest
from keras_hub.src.utils import preset_utils

from keras_diet.models import (
    DietBertTextClassifier,
    DietBertTextClassifierPreprocessor,
    DietBertTextReranker,
    DietBertTokenizer,
)
from keras_diet.training import MarginMeanSquaredError
from tests.helpers import assert_close, every_backend, once, to_numpy
from tests.models.tiny import AT_INPUT, TEXTS, VOCABULARY, randomize_weights, tiny_backbone

pytestmark = pytest.mark.any_backend
QUERIES = ["the fox", "a slow dog", "birds sing"]
LISTS = [["a cat", "the mat .", "foxes", "on"], TEXTS[:4], TEXTS[4:0:-1]]
PAIRS = [text for texts in LISTS for text in texts]
SCORES = np.array([[0.9, 0.2, 0.4, 0.1], [0.3, 0.8, 0.0, 0.6], [0.5, 0.1, 1.0, 0.7]], "float32")
RIGHT, WEIGHTS = np.array([2, 0, 3]), np.array([1.0, 0.5, 3.0], "float32")


def make_reranker(activation=None, **arguments):
    backbone = tiny_backbone(num_layers=1, **AT_INPUT)
    preprocessor = DietBertTextClassifierPreprocessor(
        DietBertTokenizer(VOCABULARY), **{"sequence_length": 13, **arguments}
    )
    return randomize_weights(DietBertTextReranker(backbone, preprocessor, activation, dropout=0.0))


def entropy_of_right(logits):
    return np.log(np.exp(logits).sum(1)) - logits[np.arange(3), RIGHT]


def margins(scores):
    errors = (scores[:, :1] - scores[:, 1:]) - (SCORES[:, :1] - SCORES[:, 1:])
    return np.mean(errors**2, axis=1)


def entropy_of_labels(logits):
    return np.mean(np.log1p(np.exp(logits)) - SCORES * logits, axis=1)


# The loss, the labels, and the loss of each query.
OF_LISTS = {
    "right": (
        keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        ),
        RIGHT,
        entropy_of_right,
    ),
    "teacher": (MarginMeanSquaredError(), SCORES, margins),
    "labels": (
        keras.losses.BinaryCrossentropy(from_logits=True, reduction="mean_with_sample_weight"),
        SCORES,
        entropy_of_labels,
    ),
}


@every_backend
@pytest.mark.parametrize("kind", ["teacher", *once("right", "labels")])
def test_losses_of_lists(kind):
    """The scores of a query are a row, in each form of a batch, and one step makes them better."""
    loss, y, reference = OF_LISTS[kind]
    form = {"right": {}, "teacher": {"packed": True}, "labels": {"length_buckets": (9, 11)}}[kind]
    reranker = make_reranker(**form)
    pairs = ([query for query in QUERIES for _ in range(4)], PAIRS)
    scores = reranker.predict(pairs, verbose=0)
    assert scores.shape == (12, 1)
    scores = scores.reshape(3, 4)
    assert scores.std() > 0.1
    assert_close(reranker.predict((QUERIES, LISTS), verbose=0, batch_size=2), scores, 1e-5)
    reranker.compile(keras.optimizers.SGD(0.001), loss)
    expected = np.sum(WEIGHTS * reference(scores)) / np.sum(WEIGHTS)
    data, arguments = (QUERIES, LISTS), {"sample_weight": WEIGHTS, "verbose": 0}
    before = reranker.evaluate(data, y, **arguments)
    assert before == pytest.approx(expected, rel=1e-5)
    reranker.fit(data, y, shuffle=False, **arguments)
    assert reranker.evaluate(data, y, **arguments) < before


def test_pairs_have_labels_or_scores():
    reranker = make_reranker()
    pairs, y = (QUERIES, PAIRS[:3]), SCORES[:, 0]
    logits = reranker.predict(pairs, verbose=0)[:, 0]
    expected = np.mean(np.log1p(np.exp(logits)) - y * logits)
    assert reranker.evaluate(pairs, y, verbose=0) == pytest.approx(expected, rel=1e-5)
    reranker.compile(loss=keras.losses.MeanSquaredError())
    found = reranker.evaluate(pairs, y, verbose=0)
    expected = np.mean((logits - y) ** 2)
    assert found == pytest.approx([expected, np.sqrt(expected)], rel=1e-5)
    # Batches of a dataset are as in `fit`.
    found = reranker.evaluate(iter([(pairs, y)]), steps=1, verbose=0)
    assert found[0] == pytest.approx(expected, rel=1e-5)


def test_texts_are_ranked(tmp_path):
    reranker = make_reranker("sigmoid")
    texts = [*TEXTS, "fox", "fox"]
    scores = reranker.predict((["the cat"] * 7, texts), verbose=0)[:, 0]
    order = sorted(range(7), key=lambda i: (-scores[i], i))
    expected = [(i, texts[i]) for i in order]
    found = reranker.rank("the cat", texts)
    assert [(each["index"], each["text"]) for each in found] == expected
    assert_close([each["score"] for each in found], scores[order], 1e-6)
    assert [each["index"] for each in reranker.rank("the cat", texts, top_k=3)] == order[:3]
    reranker.save_to_preset(tmp_path / "preset")
    reranker.save(tmp_path / "model.keras")
    for back in (
        DietBertTextReranker.from_preset(str(tmp_path / "preset")),
        keras.saving.load_model(tmp_path / "model.keras"),
    ):
        assert [each["index"] for each in back.rank("the cat", texts)] == order
        assert back.get_config().keys() == reranker.get_config().keys()


def test_arrays_of_lists():
    """Without a preprocessor, arrays have an axis for the texts of a query."""
    reranker = make_reranker()
    pairs = reranker.preprocessor(([query for query in QUERIES for _ in range(4)], PAIRS))
    expected = reranker.predict((QUERIES, LISTS), verbose=0)
    reranker.preprocessor = None
    ids = {name: array.reshape(3, 4, 13) for name, array in pairs.items()}
    assert_close(reranker.predict(ids, verbose=0), expected, 1e-5)
    reranker.compile("sgd", MarginMeanSquaredError())
    found = reranker.evaluate(ids, SCORES, verbose=0)
    assert found == pytest.approx(np.mean(margins(expected)), rel=1e-5)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_kerashub_takes_a_classifier_for_a_classifier(tmp_path, monkeypatch, is_reversed):
    """KerasHub takes the first class of a set that has the backbone of the preset."""
    listed = preset_utils.list_subclasses

    def subclasses(cls):
        return sorted(listed(cls), key=lambda each: each.__name__, reverse=is_reversed)

    monkeypatch.setattr(preset_utils, "list_subclasses", subclasses)
    make_reranker().save_to_preset(tmp_path)
    load = keras_hub.models.TextClassifier.from_preset
    assert type(load(str(tmp_path), num_classes=3)) is DietBertTextClassifier
    assert type(DietBertTextReranker.from_preset(tmp_path)) is DietBertTextReranker


NAMES = {
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
    "linear": "torch.nn.modules.linear.Identity",
}


@pytest.mark.parametrize("activation", NAMES)
def test_cross_encoders(activation, tmp_path):
    """Scores are those of sentence-transformers, there and back, from files of each version."""
    import sentence_transformers
    import torch
    from sentence_transformers.cross_encoder.losses import MarginMSELoss

    reranker = make_reranker(activation)
    (tmp_path / "config_sentence_transformers.json").write_text('{"activation_fn": "other"}')
    reranker.export_to_hugging_face(tmp_path, "bert")
    theirs = sentence_transformers.CrossEncoder(str(tmp_path), device="cpu")
    expected = to_numpy(reranker.predict((QUERIES, PAIRS[:3]), verbose=0))[:, 0]
    assert_close(theirs.predict(list(zip(QUERIES, PAIRS, strict=False))), expected, 1e-5)
    ranks = theirs.rank(QUERIES[0], PAIRS)
    found = reranker.rank(QUERIES[0], PAIRS)
    assert [each["index"] for each in found] == [each["corpus_id"] for each in ranks]
    assert_close([each["score"] for each in found], [each["score"] for each in ranks], 1e-5)
    if activation == "linear":
        columns = [QUERIES, *map(list, zip(*LISTS, strict=True))]
        loss = MarginMSELoss(theirs)(columns, torch.tensor(SCORES)).item()
        scores = reranker.predict((QUERIES, LISTS), verbose=0)
        assert float(MarginMeanSquaredError()(SCORES, scores)) == pytest.approx(loss, rel=1e-5)

    theirs.save_pretrained(str(tmp_path / "new"))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config.pop("sentence_transformers") == {"activation_fn": NAMES[activation]}
    oldest = {"sbert_ce_default_activation_function": NAMES[activation]}
    folders = [tmp_path, tmp_path / "new"]
    versions = {"oldest": {**config, **oldest}, "without": config}
    for name, contents in versions.items():
        reranker.export_to_hugging_face(tmp_path / name, "bert")
        (tmp_path / name / "config.json").write_text(json.dumps(contents))
        folders.append(tmp_path / name)
    for folder in folders:
        back = DietBertTextReranker.from_hugging_face(folder)
        name = "sigmoid" if folder.name == "without" else activation
        assert back.activation is keras.activations.get(name)
        if name == activation:
            again = back.predict((QUERIES, PAIRS[:3]), verbose=0)[:, 0]
            assert_close(again, expected, 1e-5)
    # A classifier returns logits, as in `transformers`.
    assert DietBertTextClassifier.from_hugging_face(tmp_path).output_kind == "logits"


def test_what_cannot_be_right(tmp_path):
    reranker = make_reranker()
    cases = [
        (QUERIES, "must be a tuple .queries, texts.*Received: list"),
        ((QUERIES, PAIRS[:3], PAIRS[:3]), "Received: a tuple of 3"),
        ((QUERIES, [PAIRS[:2], PAIRS[:3], PAIRS[:2]]), "from 2 to 3 texts"),
        ((QUERIES, [["a"], ["b"], ["c"]]), "at least 2"),
        # As from PyTorch's `DataLoader`, with as many texts of a query as queries.
        ((QUERIES, (PAIRS[:3], PAIRS[3:6], PAIRS[6:9])), "turns lists of texts around"),
        ((QUERIES[:2], LISTS), "same number of rows"),
        ((QUERIES, [["a", 3.0], ["b", "c"], ["d", "e"]]), r"`x\[1\]\[0\]` must hold strings"),
    ]
    for x, message in cases:
        with pytest.raises(ValueError, match=message):
            reranker.predict(x, verbose=0)
    pairs, lists, weights = (QUERIES, PAIRS[:3]), (QUERIES, LISTS), {0: 1, 1: 5}
    right = (SCORES.max(axis=1, keepdims=True) == SCORES).astype("float32")
    for call, message in (
        (lambda: reranker.fit(pairs, [0.0, 4.2, 1.0]), r"must be in \[0, 1\]"),
        (lambda: reranker.fit(pairs, [0, -1, 1]), r"must be in \[0, 1\]"),
        (lambda: reranker.fit(lists, 5 * SCORES), r"must be in \[0, 1\]"),
        (lambda: reranker.fit(lists, right, class_weight=weights), "one label for each pair"),
        (lambda: MarginMeanSquaredError()(SCORES[:, 0], SCORES), r"must have the shape \(n, k\)"),
        (lambda: reranker.rank(QUERIES, PAIRS), "`query` must be a string"),
        (lambda: make_reranker("tanh").export_to_hugging_face(tmp_path, "bert"), "activation"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    reranker.compile("sgd", OF_LISTS["right"][0])
    for x, y, options, message in (
        (pairs, [0, 0, 0], {}, "must hold a list of texts for each query"),
        (lists, RIGHT, {"class_weight": weights}, "needs the binary cross-entropy"),
        (lists, [0, 4, 1], {}, r"\[0, number of texts\) = \[0, 4\)"),
    ):
        with pytest.raises(ValueError, match=message):
            reranker.fit(x, y, **options)
    classes = DietBertTextClassifier(reranker.backbone, 3, reranker.preprocessor)
    classes.export_to_hugging_face(tmp_path, "bert")
    with pytest.raises(ValueError, match=r"one output\. Received: 3 classes"):
        DietBertTextReranker.from_hugging_face(tmp_path)
