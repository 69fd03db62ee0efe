"""`fit` of an embedder on texts of examples, chunks of a batch, and embeddings of many texts."""

from unittest import mock

import keras
import numpy as np
import pytest

from keras_diet.models import DietBertTextEmbedder, DietBertTokenizer
from keras_diet.training import (
    CoSENTLoss,
    CosineSimilarityLoss,
    EmbeddingLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from tests.helpers import (
    assert_all_close,
    assert_close,
    every_backend,
    gradients,
    once,
    to_numpy,
    weighted_sum,
)
from tests.models.tasks import tiny_preprocessor
from tests.models.tiny import TEXTS, random_inputs, randomize_weights, tiny_backbone

pytestmark = pytest.mark.any_backend
# "a cat" is the positive of two anchors, and "the fox" an anchor and a hard negative.
FIRST = ["the fox", "a slow dog", "birds sing", "the fox", "a tall tree"]
SECOND = ["a cat", "a cat", "the bird", "quick foxes", "trees ."]
THIRD = ["the mat", "the fox", "on the mat", "dogs", "sleeping"]
IDS = {
    "pairs": np.array([[0, 1], [2, 1], [3, 4], [0, 5], [6, 7]]),
    "triplets": np.array([[0, 1, 8], [2, 1, 0], [3, 4, 9], [0, 5, 10], [6, 7, 11]]),
}
# An example of weight 0 may have any score.
SCORES = [0.5, -0.25, 0.5, 7.0, 0.0]
WEIGHTS = np.array([1.0, 0.5, 2.0, 0.0, 3.0])
LOSSES = {
    "pairs": MultipleNegativesRankingLoss(3.0, symmetric=True),
    "triplets": MatryoshkaLoss(MultipleNegativesRankingLoss(3.0), (15, 4), (1.0, 0.25)),
    "cosine": CosineSimilarityLoss(),
    "cosent": CoSENTLoss(3.0),
}


class TripletLoss(EmbeddingLoss):
    """A loss of a user."""

    num_texts, takes_ids = 3, True

    def call(self, y_true, y_pred):
        near, far = (keras.ops.norm(y_pred[:, 0] - y_pred[:, i], axis=-1) for i in (1, 2))
        return keras.ops.relu(near - far + 5.0)


def make_embedder(loss=None, rate=0.0, num_chunks=None, dropout=0.0, **arguments):
    """An embedder for texts. Its weights are large, so that texts differ."""
    backbone = tiny_backbone(num_layers=1, dropout=dropout)
    preprocessor = tiny_preprocessor("embedder", **arguments)
    embedder = DietBertTextEmbedder(backbone, preprocessor, num_chunks=num_chunks)
    randomize_weights(embedder)
    if loss is not None:
        embedder.compile(keras.optimizers.SGD(rate), loss)
    return embedder


def data_of(name):
    """The texts and the labels of `fit`."""
    x = (FIRST, SECOND, THIRD) if name in ("triplets", "mine") else (FIRST, SECOND)
    return x, SCORES if name in ("cosine", "cosent") else None


def expected_loss(name, embedder, rows=slice(5)):
    """The loss of the embeddings of `predict`."""
    x, y = data_of(name)
    embeddings = np.stack([embedder.predict(texts[rows], verbose=0) for texts in x], axis=1)
    labels = IDS[name][rows] if y is None else np.array(y)[rows]
    return float(LOSSES[name](labels, embeddings, WEIGHTS[rows]))


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_of_texts_is_the_loss_of_their_embeddings(name):
    embedder = make_embedder(LOSSES[name], length_buckets=(4, 5, 7))
    x, y = data_of(name)
    expected = expected_loss(name, embedder)
    assert expected > 1e-2
    assert embedder.test_on_batch(x, y, WEIGHTS) == pytest.approx(expected, rel=1e-4)
    history = embedder.fit(
        x, y, sample_weight=WEIGHTS, validation_data=(x, y, WEIGHTS), batch_size=5, verbose=0
    ).history
    assert history["loss"] == pytest.approx([expected], rel=1e-4)
    assert history["val_loss"] == pytest.approx([expected], rel=1e-4)
    # Token ids of shape (5, k, T).
    inputs, labels, weights = embedder.batches(x, y, WEIGHTS).batch(0, 0)
    bare = DietBertTextEmbedder(embedder.backbone)
    bare.compile(loss=LOSSES[name])
    found = bare.evaluate(inputs, labels, sample_weight=weights, verbose=0)
    assert found == pytest.approx(expected, rel=1e-4)


def test_batches_are_weighted_by_their_rows():
    embedder = make_embedder(LOSSES["pairs"])
    of_parts = [
        expected_loss("pairs", embedder, slice(2)),
        expected_loss("pairs", embedder, slice(2, 5)),
    ]
    elements = [
        ((FIRST[rows], SECOND[rows]), None, WEIGHTS[rows]) for rows in (slice(2), slice(2, 5))
    ]
    found = embedder.evaluate(iter(elements), verbose=0)
    assert found == pytest.approx(np.average(of_parts, weights=[2, 3]), rel=1e-4)


def test_a_loss_of_the_user():
    embedder = make_embedder([TripletLoss()])
    a, b, c = (embedder.predict(texts, verbose=0) for texts in (FIRST, SECOND, THIRD))
    distances = [np.linalg.norm(a - other, axis=-1) for other in (b, c)]
    expected = np.mean(np.maximum(distances[0] - distances[1] + 5, 0))
    assert embedder.evaluate((FIRST, SECOND, THIRD), verbose=0) == pytest.approx(expected, rel=1e-4)


def test_predict_takes_a_tuple_as_one_text():
    embedder = make_embedder(LOSSES["pairs"])
    expected = embedder.predict((FIRST, SECOND), verbose=0)
    assert expected.shape == (5, 15)
    assert_close(embedder.predict(iter([((FIRST, SECOND),)]), verbose=0), expected)
    embedder = make_embedder()
    assert_close(embedder.predict((FIRST, SECOND), verbose=0), expected)
    assert_close(embedder.predict_on_batch((FIRST, SECOND)), expected)


def test_ids_of_texts():
    """They are the same in each process, and other texts have other ids."""
    texts = [f"text {i}" for i in range(3000)]
    _, ids, _ = make_embedder(MNRL()).columns_of_examples((texts, [*texts[1:], "Text 0"]))
    assert len(np.unique(ids)) == 3001
    assert ids[:-1, 1].tolist() == ids[1:, 0].tolist()
    assert (ids.dtype, ids[0, 0]) == ("int32", 1049447096)


MNRL = MultipleNegativesRankingLoss
COSINES = MatryoshkaLoss(CosineSimilarityLoss(), (4, 15))
PAIR = (FIRST[:1], SECOND[:1])


@pytest.mark.parametrize(
    "loss, x, y, options, message",
    [
        (MNRL(), (FIRST, SECOND), SCORES, {}, r"Leave `y` out.*`MultipleNegativesRankingLoss`"),
        (MNRL(), (FIRST, SECOND[:4]), None, {}, r"5 in `x\[0\]`, 4 in `x\[1\]`"),
        (MNRL(), FIRST, None, {}, r"of 2 or more lists.*`x=\(anchors, positives\)`.*x=list\."),
        (MNRL(), FIRST, SECOND, {}, r"`y` holds text: the second texts belong into `x`"),
        (MNRL(), np.array([FIRST, SECOND]).T, None, {}, "Received: x=ndarray"),
        (MNRL(), {"a": FIRST, "b": SECOND}, None, {}, "Received: x=dict"),
        (CoSENTLoss(), FIRST, np.array(SECOND), {}, r"x=\(first, second\)`. `y` holds text"),
        (MNRL(), (FIRST, SECOND), None, {"validation_data": (FIRST, SECOND)}, "`y` holds text"),
        (MNRL(), iter([(FIRST, SECOND)]), None, {"steps_per_epoch": 1}, "`y` holds text"),
        (MNRL(), (FIRST, SECOND), None, {"class_weight": {0: 2.0}}, "Pass `sample_weight`"),
        (MNRL(), (FIRST, SECOND), None, {"batch_size": 4}, "two pairs or more.*batch of one pair"),
        (MNRL(), (FIRST, SECOND), None, {"batch_size": 1}, "single pair has no negatives"),
        (MNRL(), (FIRST, SECOND), None, {"validation_data": (PAIR,)}, "Pass another `batch_size`"),
        (MNRL(), iter([((FIRST, SECOND),), (PAIR,)]), None, {"steps_per_epoch": 2}, "single pair"),
        (CoSENTLoss(), (FIRST, SECOND), None, {}, "Pass scores, with `CoSENTLoss`"),
        (CoSENTLoss(), (FIRST, SECOND), [*SCORES[:3], np.nan, 1], {}, "NaN in row 3"),
        (MatryoshkaLoss(CoSENTLoss(), (4,)), (FIRST, SECOND), 5 * [np.nan], {}, "NaN in row 0"),
        (CoSENTLoss(), (FIRST, SECOND, THIRD), SCORES, {}, r"of 2 lists.*x=a tuple of 3"),
        (CosineSimilarityLoss(), (FIRST, SECOND), [0, np.nan, 0, 0, 0], {}, "nan"),
        (COSINES, (FIRST, SECOND), [5.0, 0, 0, 0, -7.0], {"batch_size": 2}, r"-7\.0 to 5\.0"),
        (MatryoshkaLoss(MNRL(), (4, 16)), (FIRST, SECOND), None, {}, r"embeddings, 15.*\[4, 16\]"),
        (TripletLoss(), (FIRST, SECOND), None, {}, "`TripletLoss`, `x` must be a tuple of 3"),
    ],
)
def test_refused(loss, x, y, options, message):
    with pytest.raises(ValueError, match=message):
        make_embedder(loss).fit(x, y, verbose=0, **options)


def test_token_ids_of_all_texts_are_checked(rng):
    embedder = DietBertTextEmbedder(tiny_backbone())
    embedder.compile(loss=MNRL())
    inputs = {key: ids.reshape(2, 2, -1) for key, ids in random_inputs(rng, 4).items()}
    with pytest.raises(ValueError, match="needs labels"):
        embedder.fit(inputs)
    pair = {key: keras.ops.convert_to_tensor(ids[:1]) for key, ids in inputs.items()}
    with pytest.raises(ValueError, match="single pair has no negatives"):
        embedder.evaluate(pair, IDS["pairs"][:1])
    embedder.compile(loss=COSINES)
    with pytest.raises(ValueError, match=r"values from 0\.5 to 7\.0"):
        embedder.fit(inputs, np.array([0.5, 7.0]))
    # An example of weight 0 may have any score.
    embedder.fit(inputs, np.array([0.5, 7.0]), sample_weight=np.array([2.0, 0.0]), verbose=0)
    inputs["token_ids"][1, 1, 2] = 99
    with pytest.raises(ValueError, match=r"^`x\['token_ids'\]` must .*99"):
        embedder.fit(inputs, np.array([0.5, 0.7]))


def test_metrics_of_keras_are_refused():
    embedder = DietBertTextEmbedder(tiny_backbone())
    for arguments in ({"metrics": ["mse"]}, {"weighted_metrics": [keras.metrics.Accuracy()]}):
        embedder.compile(loss="mse", **arguments)
        with pytest.raises(ValueError, match=r"Measure with `keras_diet\.metrics`"):
            embedder.compile(loss=MNRL(), **arguments)


@pytest.mark.any_backend("jax")
def test_a_number_of_chunks_holds_from_the_next_step_on(monkeypatch):
    """On JAX, the compiled step would go on without it."""
    seen = []
    module = "keras_diet.models.diet_bert.diet_bert_text_embedder.call_in_chunks"
    monkeypatch.setattr(module, lambda m, inputs, number, call: seen.append(number) or call(inputs))
    embedder = make_embedder(MNRL(3.0))
    for embedder.num_chunks in (None, 2, 3):
        embedder.fit((FIRST, SECOND), batch_size=5, verbose=0)
    assert sorted(set(seen)) == [2, 3]


def test_triplets_need_no_second_example():
    embedder = make_embedder(MNRL(3.0))
    embedder.fit((FIRST, SECOND, THIRD), batch_size=4, verbose=0)


# === Chunks ===


@every_backend
def test_chunks_drop_the_same_units_for_the_gradient(rng):
    """The gradients are those of two calls, each of which draws its own units."""
    embedder = make_embedder(dropout=0.5)
    weights = {id(weight) for weight in embedder.weights}
    seeds = [variable for variable in embedder.variables if id(variable) not in weights]
    states = [to_numpy(seed) for seed in seeds]
    inputs = embedder.preprocessor([TEXTS[0]] * 4)
    halves = [
        {name: array[start : start + 2] for name, array in inputs.items()} for start in (0, 2)
    ]
    factors = rng.normal(size=(4, 15)).astype("float32")

    def two_calls():
        return keras.ops.concatenate([embedder(half, training=True) for half in halves])

    def restart():
        # PyTorch draws from its own generator.
        keras.utils.set_random_seed(3)
        for seed, state in zip(seeds, states, strict=True):
            seed.assign(state)

    def results(function):
        restart()
        outputs = to_numpy(function())
        restart()
        return outputs, *gradients(
            lambda: weighted_sum(function(), factors), embedder.trainable_variables
        )

    expected = results(two_calls)
    assert len(np.unique(expected[0].round(5), axis=0)) == 4
    embedder.num_chunks = 2
    found = results(lambda: embedder(inputs, training=True))
    assert_all_close(found, expected)
    first, second = (to_numpy(embedder(inputs, training=True)) for _ in range(2))
    assert np.abs(first - second).max() > 1e-2
    assert_close(embedder(inputs)[0], make_embedder()(inputs)[0])


@every_backend
@pytest.mark.parametrize(("num_chunks", "largest"), [(4, 4), *once((20, 1))])
def test_a_step_with_chunks_is_the_step_without(num_chunks, largest):
    """A step has 15 texts, in 4 chunks or in one for each text. Inference needs no chunks."""
    steps = []
    for number in (None, num_chunks):
        embedder = make_embedder(LOSSES["triplets"], rate=0.1, num_chunks=number)
        watched = embedder.backbone.token_embedding
        with mock.patch.object(watched, "call", wraps=watched.call) as calls:
            embedder.fit((FIRST, SECOND, THIRD), batch_size=5, shuffle=False, epochs=2, verbose=0)
            sizes = {each.args[0].shape[0] for each in calls.call_args_list}
            assert 0 not in sizes
            assert (sizes == {15}) is (number is None)
            assert max(sizes - {15}, default=0) <= largest
            embedder(embedder.preprocessor(FIRST))
        assert calls.call_args.args[0].shape[0] == 5
        steps.append(embedder.get_weights())
    assert np.abs(steps[0][0] - make_embedder().get_weights()[0]).max() > 1e-2
    assert_all_close(*steps, tolerance=1e-4)


def test_chunks_are_saved(tmp_path):
    embedder = make_embedder(num_chunks=3)
    embedder.save_to_preset(tmp_path)
    assert DietBertTextEmbedder.from_preset(tmp_path).num_chunks == 3
    with pytest.raises(ValueError, match=r"`num_chunks` must be .*num_chunks=0"):
        make_embedder(num_chunks=0)


# === Many texts ===


def test_encode_text_sorts_by_length(capsys):
    embedder = make_embedder(length_buckets=(5, 9))
    texts = [*FIRST, *TEXTS]
    expected = embedder.predict(texts, verbose=0)
    tokenize = mock.Mock(wraps=embedder.preprocessor.tokenizer.tokenize)
    with (
        mock.patch.object(embedder, "infer_batch", wraps=embedder.infer_batch) as calls,
        mock.patch.object(DietBertTokenizer, "tokenize", tokenize),
    ):
        seen = mock.Mock(spec=keras.callbacks.Callback)
        found = embedder.encode_text(np.array(texts), batch_size=4, callbacks=[seen])
    (once,) = tokenize.call_args_list
    assert once.args == (texts,)
    assert seen.on_predict_batch_end.call_count == 3
    assert_close(found, expected)
    assert "3/3" in capsys.readouterr().out
    assert [each.args[0]["token_ids"].shape for each in calls.call_args_list] == [
        (4, 13),
        (4, 9),
        (2, 5),
    ]
    assert_close(embedder.encode_text(TEXTS[2], verbose=0), expected[7:8])
    # Tokens count, and not characters.
    with mock.patch.object(embedder, "infer_batch", wraps=embedder.infer_batch) as calls:
        embedder.encode_text(["sleeping cat", ". . a . a"], batch_size=1, verbose=0)
    lengths = [each.args[0]["token_ids"].shape[1] for each in calls.call_args_list]
    assert lengths == [9, 5]
    # A function as preprocessor has no tokenizer, so characters count.
    ours = embedder.preprocessor
    embedder.preprocessor = lambda x: ours(x)
    assert_close(embedder.encode_text(texts, batch_size=4, verbose=0), expected)


@every_backend
@pytest.mark.skipif(keras.backend.backend() == "torch", reason="PyTorch takes one step at a time")
@pytest.mark.parametrize("steps", [2, 20])
def test_each_text_has_its_embedding_with_several_steps_in_one_execution(steps):
    """The last execution has fewer batches, and the last batch fewer texts."""
    embedder = make_embedder(length_buckets=(5, 9))
    texts = [*FIRST, *TEXTS, "birds"]
    expected = embedder.encode_text(texts, batch_size=4, verbose=0)
    embedder.compile("adam", steps_per_execution=steps)
    assert_close(embedder.encode_text(texts, batch_size=4, verbose=0), expected)
    assert_close(embedder.predict(texts, batch_size=4, verbose=0), expected)
