"""Several texts in a sequence: the same results, losses, metrics and trainings as one by one."""

import json
from types import SimpleNamespace
from unittest import mock

import keras
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keras_diet.models.hub.token_rows import pack_documents
from keras_diet.training import CosineSimilarityLoss, ExactResume, MultipleNegativesRankingLoss
from tests.helpers import assert_all_close, assert_close, once, to_numpy
from tests.models.tasks import CLASSES, tiny_preprocessor
from tests.models.tiny import TEXTS, VOCABULARY, randomize_weights, tiny_backbone

any_backend = pytest.mark.any_backend
LENGTH = 27
# The third text has more tokens than a sequence. In batches of 3, the last batch has one text.
X = ["the fox", TEXTS[0], " ".join(TEXTS), "a cat sleeping .", TEXTS[2], "and", TEXTS[3]]
NAMES = ["bad", "fair", "good"]
Y = ["good", "bad", "fair", "good", "good", "fair", "bad"]
TAGS = [["good", "bad"], [], ["fair"], ["fair", "good"], ["bad"], NAMES, ["good"]]
WEIGHTS = np.array([0.5, 2.0, 1.0, 0.0, 1.5, 3.0, 0.25], "float32")
SCORES = np.array([0.5, -0.25, 1.5, 2.0, 0.0, 0.75, -1.0], "float32")
ROWS = np.random.default_rng(3).normal(size=(7, 15)).astype("float32")
SENTENCES = [text.split() for text in X]
WORD_LABELS = [[(7 * i + 3 * j) % 5 for j in range(len(s))] for i, s in enumerate(SENTENCES)]
# The task, its arguments, the texts and the labels.
DATA = {
    "classes": ("classifier", {"class_names": NAMES}, X, Y),
    "pairs": ("classifier", {"class_names": NAMES}, (X, ["the cat", *TEXTS, "a fox"]), Y),
    "several labels": ("classifier", {"class_names": NAMES, "multi_label": True}, X, TAGS),
    "numbers": ("classifier", {"num_classes": 1}, X, SCORES),
    "words": ("token_classifier", {"num_classes": 5}, SENTENCES, WORD_LABELS),
    "mean": ("embedder", {"pooling_mode": "mean"}, X, ROWS),
    "max": ("embedder", {"pooling_mode": "max", "normalize": False}, X, ROWS),
    "cls": ("embedder", {"pooling_mode": "cls"}, X, ROWS),
}


def make_task(task, packed, loss=None, arguments=None, **of_backbone):
    """A task without dropout, with the same large weights whether it is packed or not."""
    backbone = tiny_backbone(num_layers=1, max_sequence_length=LENGTH, **of_backbone)
    preprocessor = tiny_preprocessor(task, sequence_length=LENGTH, packed=packed)
    arguments = arguments or {} if task == "embedder" else {"dropout": 0.0, **arguments}
    model = randomize_weights(CLASSES[task][0](backbone, preprocessor=preprocessor, **arguments))
    loss = loss or ("mse" if task == "embedder" else "auto")
    # With SGD, weights are as near as gradients.
    model.compile(keras.optimizers.SGD(0.05), loss)
    return model


def both(name, **of_backbone):
    """The model with a sequence for each text and with several texts in a sequence, and data."""
    task, arguments, x, y = DATA[name]
    models = [make_task(task, packed, None, arguments, **of_backbone) for packed in (False, True)]
    return *models, x, y


@pytest.mark.filterwarnings("ignore:Some sentences have more")
@pytest.mark.parametrize("name", ["mean", *once(*(name for name in DATA if name != "mean"))])
def test_results_losses_and_trainings_are_those_of_texts_one_by_one(name):
    expected, packed, x, y = both(name)
    found = packed.predict(x, batch_size=3, verbose=0)
    reference = expected.predict(x, batch_size=3, verbose=0)
    if name == "words":
        sizes = expected.preprocessor(x)["padding_mask"].sum(1)
        reference[np.arange(LENGTH) >= sizes[:, None]] = 0
    assert_close(found, reference)
    data = {"x": x, "y": y, "sample_weight": WEIGHTS, "batch_size": 3, "verbose": 0}
    results = []
    for model in (expected, packed):
        losses = model.evaluate(**data)
        history = model.fit(**data, shuffle=False, validation_data=(x, y)).history
        results.append([np.ravel(losses), list(history.values()), *model.get_weights()])
    assert_all_close(results[1], results[0])


@pytest.mark.filterwarnings("ignore:Some sentences have more")
@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX compiles the steps of all tests")
@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize("name", ["words", *once("mean")])
def test_compiled_steps(name):
    expected, packed, x, y = both(name)
    # The first time PyTorch calls the layers, then it records the graph, and then it runs it.
    for texts in (x, x, x[::-1]):
        reference = packed(packed.preprocessor(texts))
        assert_close(packed.predict(texts, batch_size=3, verbose=0), reference)
    expected.run_eagerly = True
    for model in (expected, packed):
        model.fit(x, y, batch_size=3, shuffle=False, verbose=0)
    assert_all_close(packed.get_weights(), expected.get_weights())


@any_backend
@pytest.mark.parametrize("name", ["cosine", "triplets"])
def test_texts_of_examples_may_be_in_several_sequences(name):
    x, loss, y = (X, X[::-1], X[3:] + X[:3]), MultipleNegativesRankingLoss(3.0), None
    # With "mean", only the ids of documents say where a text is.
    arguments = {"pooling_mode": "mean" if name == "cosine" else "cls"}
    if name == "cosine":
        x, loss, y = x[:2], CosineSimilarityLoss(), np.clip(SCORES, -1, 1)
    results = []
    for packed in (False, True):
        embedder = make_task("embedder", packed, loss, arguments)
        data = {"sample_weight": WEIGHTS, "batch_size": 5, "shuffle": False, "verbose": 0}
        losses = embedder.fit(x, y, **data, epochs=2).history["loss"]
        assert losses[0] > 1e-2
        results.append([losses, *embedder.get_weights()])
    assert_all_close(*results)


@any_backend
@pytest.mark.filterwarnings("ignore:Some sentences have more")
@pytest.mark.parametrize("name", ["classes", "words"])
def test_dropout(name):
    task, arguments, x, _ = DATA[name]
    model = make_task(task, True, None, {**arguments, "dropout": 0.5})
    outputs = [model(model.preprocessor(x), training=True) for _ in range(2)]
    assert np.abs(to_numpy(outputs[0]) - to_numpy(outputs[1])).max() > 0.1


@any_backend
@pytest.mark.parametrize(
    "name, of_texts, shape",
    [("classes", (), (None, 3)), ("words", (), (None, None, 5)), ("mean", (2,), (None, 2, 15))],
)
def test_symbolic_outputs(name, of_texts, shape):
    model = both(name)[1]
    names = ("token_ids", "segment_ids", "padding_mask", "document_ids")
    inputs = {name: keras.Input((None,), dtype="int32") for name in names}
    inputs["document_first_tokens"] = keras.Input(of_texts, dtype="int32")
    assert model(inputs).shape == shape


@any_backend
def test_methods_for_texts(tmp_path):
    expected, packed, _, _ = both("classes")
    packed.save_to_preset(tmp_path)
    for model in (packed, type(packed).from_preset(tmp_path)):
        assert model.preprocessor.packed
        for texts in (X, X[1]):
            found, reference = (each.classify(texts, batch_size=3) for each in (model, expected))
            assert _rounded(found) == _rounded(reference)
    assert_close(packed.predict_on_batch(X), expected.predict_on_batch(X))
    expected, packed, sentences, _ = both("words")
    with mock.patch.object(packed, "infer_batch", wraps=packed.infer_batch) as infer:
        # Long sentences become windows.
        found = packed.tag(sentences, 7)
    assert [len(call.args[0]["document_first_tokens"]) for call in infer.call_args_list] == [7, 1]
    assert _rounded(found) == _rounded(expected.tag(sentences, 3))
    expected, packed, _, _ = both("mean")
    found = [model.encode_text(X, batch_size=3, verbose=0) for model in (packed, expected)]
    assert_close(*found)


def _rounded(results):
    return json.loads(json.dumps(results), parse_float=lambda x: round(float(x), 4))


@pytest.mark.any_backend("tensorflow")
def test_a_resumable_training_has_batches_of_different_sizes(tmp_path):
    """The third of four batches has two sequences, the others have one."""
    expected, packed, x, y = both("classes")
    x, y = ([column[i] for i in (0, 1, 3, 4, 2, 5, 6)] for column in (x, y))
    options = {"batch_size": 2, "shuffle": False, "verbose": 0}
    reference = expected.fit(x, y, **options).history["loss"]
    found = ExactResume(tmp_path, 9).fit(packed, x, y, **options).history["loss"]
    assert_close(found, reference)


# === Packing ===


@any_backend
@pytest.mark.filterwarnings("ignore:Some sentences have more")
def test_places_of_texts():
    """The longest text first, each where it fits first."""
    vocabulary, arguments = VOCABULARY[::-1], {"sequence_length": LENGTH, "packed": True}
    preprocessor = tiny_preprocessor("classifier", vocabulary, **arguments)
    x, y = preprocessor(X, SCORES)
    # The sizes are 4, 14, 27, 7, 11, 3, 9.
    numbers = [[3] * 27, [2] * 14 + [5] * 11 + [0] * 2, [7] * 9 + [4] * 7 + [1] * 4 + [6] * 3]
    numbers[2] += [0] * 4
    assert x["document_ids"].tolist() == numbers
    assert x["document_first_tokens"].tolist() == [70, 27, 0, 63, 41, 74, 54]
    assert x["document_ids"].dtype == x["document_first_tokens"].dtype == "int32"
    assert np.all(x["token_ids"][x["document_ids"] == 0] == vocabulary.index("[PAD]"))
    np.testing.assert_array_equal(y, SCORES)


@any_backend
@settings(max_examples=30, deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(1, 11), min_size=1, max_size=90), seed=st.integers(0, 99))
@example(sizes=[5] * 70, seed=0)
@example(sizes=[11] * 17, seed=0)
def test_every_token_is_in_its_document(sizes, seed):
    rng = np.random.default_rng(seed)
    token_ids = rng.integers(0, 31, (len(sizes), 11)).astype("int32")
    mask = np.arange(11) < np.array(sizes)[:, None]
    # Tokens may have the id of padding.
    token_ids[~mask] = 5
    x = pack_documents({"token_ids": token_ids, "padding_mask": mask}, pad=5)
    ids, number = x["document_ids"], len(x["token_ids"])
    for i, (size, first) in enumerate(zip(sizes, x["document_first_tokens"], strict=True)):
        np.testing.assert_array_equal(np.flatnonzero(ids == i + 1), first + np.arange(size))
        assert first // 11 == (first + size - 1) // 11
        for name, array in (("token_ids", token_ids), ("padding_mask", mask)):
            np.testing.assert_array_equal(x[name].ravel()[first : first + size], array[i, :size])
    assert np.all(x["token_ids"][ids == 0] == 5)
    assert not np.any(x["padding_mask"][ids == 0])
    filled = np.sum(np.any(ids > 0, axis=1))
    assert np.all(np.sum(ids > 0, axis=1)[: filled - 1] > 5)
    # Four significant digits, but no more rows than texts.
    assert filled <= number <= min(len(sizes), filled * 9 / 8)
    assert number == len(sizes) or number % 2 ** max(filled.item().bit_length() - 4, 0) == 0


# === Refusals ===


@any_backend
def test_refused_arguments():
    with pytest.raises(ValueError, match=r"must be `None`. Received: .*\(5, 9\)"):
        tiny_preprocessor("classifier", packed=True, length_buckets=(5, 9))
    with pytest.raises(ValueError, match=r"Unrecognized keyword arguments.*packed"):
        tiny_preprocessor("masked_lm", packed=True)
    linformer = make_task("embedder", True, projection_dim=5, segment_encoding="none")
    with pytest.raises(ValueError, match="projection_dim=None"):
        linformer.predict(X, verbose=0)
    embedder = make_task("embedder", True, arguments={"num_chunks": 2})
    with pytest.raises(ValueError, match="num_chunks=2 with a preprocessor with `packed=True`"):
        embedder.fit(X, ROWS, verbose=0)
    embedder.distribute_strategy = SimpleNamespace(num_replicas_in_sync=2)
    with pytest.raises(ValueError, match=r"needs batches that are whole.*several replicas"):
        embedder.predict(X, verbose=0)


@any_backend
@pytest.mark.parametrize("task", ["classifier", "token_classifier"])
def test_one_text_is_no_batch(task):
    preprocessor = tiny_preprocessor(task, packed=True)
    x = X[0] if task == "classifier" else SENTENCES[0]
    for call in (lambda: preprocessor(x), lambda: preprocessor((x, 1)), lambda: preprocessor(x, 1)):
        with pytest.raises(ValueError, match="needs a batch of texts"):
            call()


@any_backend
def test_arrays_for_packed_texts_are_refused():
    """Keras would divide sequences and texts alike."""
    _, model, _, _ = both("classes")
    arrays, model.preprocessor = model.preprocessor(X), None
    with pytest.raises(ValueError, match=r"no others. Received.*'document_first_tokens'"):
        model.predict(arrays, verbose=0)


@pytest.mark.any_backend("jax")
def test_several_processes_are_refused(monkeypatch):
    jax, embedder = pytest.importorskip("jax"), make_task("embedder", True)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match="several processes of JAX"):
        embedder.predict(X, verbose=0)


@pytest.mark.any_backend("tensorflow")
def test_a_graph_is_refused():
    tf = pytest.importorskip("tensorflow")
    with pytest.raises(ValueError, match="outside of a graph"):
        tf.data.Dataset.from_tensor_slices(X).batch(3).map(
            tiny_preprocessor("embedder", packed=True)
        )
