"""Question answering: windows and positions, logits, losses, `answer`, and what is refused."""

import re
from unittest import mock

import keras
import numpy as np
import pytest

from keras_diet.models import (
    DietBertQuestionAnswererPreprocessor,
    DietBertTokenizer,
)
from tests.helpers import assert_close, every_backend, to_numpy
from tests.models.question_answering import (
    ANSWERS,
    CONTEXTS,
    QUESTIONS,
    all_spans,
    tiny_preprocessor,
    tiny_question_answerer,
)
from tests.models.tasks import dataset_of, every_dataset
from tests.models.test_data import Column
from tests.models.tiny import VOCABULARY, randomize_weights, tiny_backbone

pytestmark = pytest.mark.any_backend
X = (QUESTIONS, CONTEXTS)
WEIGHTS, OF_WINDOWS = [2.0, 3.0, 5.0], [2, 2, 3, 5, 5, 5]
OUTPUTS = ("start", "end")
# 2 is [CLS], 3 is [SEP].
TOKEN_IDS = [
    [2, 18, 19, 3, 5, 17, 18, 19, 20, 21, 3],
    [2, 18, 19, 3, 19, 20, 21, 22, 5, 3, 0],
    [2, 20, 21, 15, 3, 15, 16, 30, 6, 3, 0],
    [2, 27, 3, 9, 10, 11, 12, 13, 5, 14, 3],
    [2, 27, 3, 12, 13, 5, 14, 15, 30, 24, 3],
    [2, 27, 3, 14, 15, 30, 24, 16, 25, 3, 0],
]
POSITIONS = {"start": np.array([6, 0, 0, 0, 5, 0]), "end": np.array([7, 0, 0, 0, 7, 0])}


def random_question_answerer():
    return randomize_weights(tiny_question_answerer())


@pytest.fixture(scope="module")
def inputs():
    return {name: to_numpy(array) for name, array in tiny_preprocessor()(X).items()}


# === The preprocessor ===


def assert_is_expected(outputs, rows=slice(None)):
    x, y, sample_weight = outputs
    assert to_numpy(x["token_ids"]).tolist() == TOKEN_IDS[rows]
    assert to_numpy(x["segment_ids"]).sum(-1).tolist() == [7, 6, 5, 8, 8, 7][rows]
    assert to_numpy(x["padding_mask"]).sum(-1).tolist() == [11, 10, 10, 11, 11, 10][rows]
    for name, positions in POSITIONS.items():
        assert to_numpy(y[name]).tolist() == positions[rows].tolist()
    assert to_numpy(sample_weight).tolist() == OF_WINDOWS[rows]


def test_examples_become_windows():
    preprocessor = tiny_preprocessor()
    assert_is_expected(preprocessor(X, ANSWERS, WEIGHTS))
    # The elements of a dataset.
    assert_is_expected(preprocessor((X, ANSWERS, WEIGHTS)))
    one = (QUESTIONS[2], CONTEXTS[2]), {"text": "the lazy dog", "answer_start": 18}, 5.0
    assert_is_expected(preprocessor(*one), slice(3, None))
    rows = [dict(zip(ANSWERS, row, strict=True)) for row in zip(*ANSWERS.values(), strict=True)]
    # Rows of Hugging Face have lists of answers.
    several = {"text": ["the lazy dog", "birds"], "answer_start": [18, 35]}
    hugging_face = [rows[0], {"text": [], "answer_start": []}, several]
    for answers in (rows, hugging_face, Column(hugging_face)):
        assert_is_expected(preprocessor(X, answers, WEIGHTS))
    model = tiny_question_answerer()
    expected = model.evaluate(X, ANSWERS, verbose=0)
    assert model.evaluate(X, hugging_face, verbose=0) == pytest.approx(expected)


@pytest.mark.parametrize(("longest", "expected"), [(13, (13, 4)), (385, (384, 128))])
def test_new_preprocessors_fit_the_backbone_of_a_preset(tmp_path, longest, expected):
    tiny_backbone(num_layers=1, max_sequence_length=longest).save_to_preset(str(tmp_path))
    DietBertTokenizer(VOCABULARY).save_to_preset(str(tmp_path))
    loaded = DietBertQuestionAnswererPreprocessor.from_preset(str(tmp_path))
    assert (loaded.sequence_length, loaded.doc_stride) == expected


# === Outputs and losses ===


def by_hand(question_answerer, inputs):
    """The logits from the hidden states, with -1e9 where no answer can begin or end."""
    hidden_states = to_numpy(question_answerer.backbone(inputs)["sequence_output"])
    kernel, bias = map(to_numpy, question_answerer.output_dense.weights)
    logits = hidden_states @ kernel + bias
    position, last = np.arange(11), inputs["padding_mask"].sum(-1, keepdims=True) - 1
    segments = inputs["segment_ids"]
    is_second = (segments == 1) | (segments.max(-1, keepdims=True) == 0)
    is_context = is_second & (position < last)
    logits[(position != 0) & ~is_context] = -1e9
    return {"start": logits[..., 0], "end": logits[..., 1]}


@every_backend
def test_logits_and_losses(inputs):
    """Positions that cannot win are excluded. The loss is the mean of both cross-entropies."""
    model = random_question_answerer()
    # RoBERTa has no second segment, so all tokens but the last one are possible.
    segments = inputs["segment_ids"] * np.array([1, 0, 1, 1, 0, 1], "int32")[:, None]
    some = {**inputs, "segment_ids": segments}
    assert_close(model(some)["start"], by_hand(model, some)["start"], 1e-5)
    logits, found = by_hand(model, inputs), model(inputs)
    assert set(found) == set(OUTPUTS)
    losses = []
    for name in OUTPUTS:
        assert_close(found[name], logits[name], 1e-5)
        # [CLS], and 6, 5, 4, 7, 7 and 6 tokens of the contexts.
        assert (to_numpy(found[name]) > -1e8).sum(-1).tolist() == [7, 6, 5, 8, 8, 7]
        rows = logits[name].astype("float64")
        normalizer = np.log(np.exp(rows - rows.max(-1, keepdims=True)).sum(-1)) + rows.max(-1)
        loss = normalizer - rows[np.arange(6), POSITIONS[name]]
        losses.append(np.mean(np.array(OF_WINDOWS) * loss))
    assert np.abs(logits["start"] - logits["end"]).max() > 0.1
    found = model.evaluate(X, ANSWERS, sample_weight=WEIGHTS, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert found["start_loss"] == pytest.approx(losses[0], rel=1e-5)
    accuracy = np.mean(logits["end"].argmax(-1) == POSITIONS["end"])
    assert found["end_accuracy"] == pytest.approx(accuracy)


def test_token_ids_and_other_losses(inputs):
    model = random_question_answerer()
    assert float(model.optimizer.learning_rate) == pytest.approx(5e-5)
    expected = model.evaluate(X, ANSWERS, sample_weight=WEIGHTS, verbose=0)
    model.preprocessor = None
    weights = np.array(OF_WINDOWS, "float32")
    found = model.evaluate(inputs, POSITIONS, sample_weight=weights, verbose=0)
    assert found == pytest.approx(expected, rel=1e-6)
    # Other losses are summed, and have no metrics.
    loss = keras.losses.CategoricalFocalCrossentropy(from_logits=True)
    model.compile("sgd", {"start": loss, "end": loss})
    one_hot = {name: np.eye(11)[rows] for name, rows in POSITIONS.items()}
    found = model.evaluate(inputs, one_hot, verbose=0, return_dict=True)
    assert set(found) == {"loss", "start_loss", "end_loss"}
    assert found["loss"] == pytest.approx(found["start_loss"] + found["end_loss"])


# === Data ===


def test_windows_are_batched_and_shuffled_with_their_labels_and_weights():
    dataset = tiny_question_answerer().batches(X, ANSWERS, WEIGHTS, batch_size=4, shuffle=True)
    rows = list(zip(TOKEN_IDS, POSITIONS["start"], POSITIONS["end"], OF_WINDOWS, strict=True))
    orders = []
    for epoch in range(2):
        order = []
        for x, y, weights in (dataset.batch(epoch, index) for index in range(2)):
            order += zip(x["token_ids"].tolist(), y["start"], y["end"], weights, strict=True)
        assert sorted(order) == sorted(rows)
        orders.append(order)
    assert len(weights) == 2
    assert orders[0] != orders[1]


def test_validation_split_separates_examples_and_texts_are_tokenized_once():
    """A third of three examples is the last one, although it has half of the windows."""
    model = tiny_question_answerer()
    tokenizer = model.preprocessor.tokenizer
    x = (QUESTIONS, ["a red cat", "a red cat", CONTEXTS[2]])
    y = {"text": ["red", "", "the lazy dog"], "answer_start": [2, -1, 18]}
    wrapped = mock.Mock(wraps=tokenizer.tokenize_with_offsets)
    with mock.patch.object(tokenizer, "tokenize_with_offsets", wrapped):
        history = model.fit(x, y, validation_split=0.3, shuffle=False, verbose=0).history
    seen = [tuple(call.args[0]) for call in wrapped.call_args_list]
    assert sorted(seen) == sorted([(*QUESTIONS[:2], "a red cat"), (QUESTIONS[2], CONTEXTS[2])])
    assert {"loss", "val_loss", "val_end_accuracy"} <= set(history)


@every_dataset
def test_datasets_are_read_batch_by_batch(kind):
    """Three windows in the first batch, and three in the second."""
    model = random_question_answerer()
    expected = model.evaluate(X, ANSWERS, 3, sample_weight=WEIGHTS, verbose=0)
    found = model.evaluate(dataset_of(kind, X, ANSWERS, WEIGHTS), verbose=0)
    assert found == pytest.approx(expected, rel=1e-5)
    outputs = model.predict(dataset_of(kind, X, ANSWERS), verbose=0)
    keras.tree.map_structure(assert_close, outputs, model.predict(X, verbose=0))


# === Answers ===


def test_answers_against_loops():
    model = random_question_answerer()
    answers = model.answer(*X, top_k=5, max_answer_length=3, batch_size=4)
    windows = model.preprocessor.windows(*X)
    scores, null_scores = all_spans(windows, model.predict(X, verbose=0), 3)
    for row, (context, found) in enumerate(zip(CONTEXTS, answers, strict=True)):
        best = sorted(scores[row], key=scores[row].get, reverse=True)[:5]
        expected = [
            {
                "text": context[slice(*span)],
                "score": scores[row][span],
                "start": span[0],
                "end": span[1],
                "null_score": null_scores[row],
            }
            for span in best
        ]
        assert found == [pytest.approx(each, abs=1e-4) for each in expected]


def test_forms_of_arguments_and_results():
    model = random_question_answerer()
    answers = model.answer(*X)
    one = model.answer(QUESTIONS[2], CONTEXTS[2])
    assert one == pytest.approx(answers[2], abs=1e-5)
    assert (type(one["score"]), type(one["start"])) == (float, int)
    assert model.answer(QUESTIONS[2], CONTEXTS[2], top_k=2)[0] == one
    ((of_array,),) = model.answer(np.array(QUESTIONS[2:]), np.array(CONTEXTS[2:]), top_k=1)
    assert of_array == one


def test_more_answers_than_the_best_of_each_window():
    model = random_question_answerer()
    many = model.answer(*X, top_k=30)
    assert [len(found) for found in many] == [30, 10, 30]
    assert model.answer(*X, top_k=4, n_best=1) == [found[:4] for found in many]


def test_short_windows_have_the_shortest_bucket():
    """Windows of 10 tokens have the length 10, and those of 11 tokens have the length 11."""
    model = random_question_answerer()
    expected = model.answer(*X)
    model.preprocessor = tiny_preprocessor(length_buckets=(7, 10))
    with mock.patch.object(model, "infer", wraps=model.infer) as infer:
        answers = model.answer(*X, batch_size=1)
    for found, each in zip(answers, expected, strict=True):
        assert found == pytest.approx(each, abs=1e-4)
    shapes = [call.args[0]["token_ids"].shape for call in infer.call_args_list]
    assert shapes == [(3, 10), (3, 11)]
    # Batches with answers have one length, and so have predictions of several batches.
    x = (["tree"], ["a dog and a cat"])
    inputs, _ = model.preprocessor(x, {"text": ["dog"], "answer_start": [2]})
    assert {array.shape for array in inputs.values()} == {(1, 10)}
    assert model.preprocessor(x)["token_ids"].shape == (1, 11)


def test_no_answer_wins_above_its_threshold():
    """With exactly the threshold, a question has an answer."""
    model = random_question_answerer()
    for row, best in enumerate(model.answer(*X)):
        score = best["null_score"]
        empty = {"text": "", "score": score, "start": -1, "end": -1, "null_score": score}
        threshold = score - best["score"]
        (found, second), (none, first) = (
            model.answer(*X, null_threshold=float(value), top_k=2)[row]
            for value in (threshold, np.nextafter(threshold, -np.inf))
        )
        assert (found, none, first) == (best, empty, best)
        assert second["score"] < best["score"]


# === Refusals ===


# Questions and contexts, answers, and weights.
REFUSED = {
    "must be a tuple (questions, contexts)": (QUESTIONS,),
    "`x[1]` must hold strings. Received: nan in": ((QUESTIONS, [*CONTEXTS[:2], np.nan]),),
    "a question without tokens in row 2": (([*QUESTIONS[:2], ""], CONTEXTS),),
    "room for 3 tokens of the context in row 0": ((["a red cat sings", *QUESTIONS[1:]], CONTEXTS),),
    # One character off, and counted from the end.
    "the start 17 in row 2": (X, {**ANSWERS, "answer_start": [10, -1, 17]}),
    "the start -23 in row 0": (X, {**ANSWERS, "answer_start": [-23, -1, 18]}),
    "'' with the start 0 in row 1": (X, {**ANSWERS, "answer_start": [10, 0, 18]}),
    "3 in `questions`, 3 in `contexts`, 3 in `y[0]`, 3 in `y[1]`, 2 in `sample_weight`": (
        X,
        ANSWERS,
        [1.0, 2.0],
    ),
    "finite numbers. Received: nan in row 1": (X, ANSWERS, [1.0, np.nan, 2.0]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_would_be_silently_wrong_is_refused(message):
    model, data = tiny_question_answerer(), REFUSED[message]
    for call in (
        lambda: model.preprocessor(*data),
        lambda: model.train_on_batch(*data),
        lambda: model.fit(iter([data]), verbose=0),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            call()


def test_arguments_that_cannot_be_right_are_refused():
    model = tiny_question_answerer()
    for call, message in (
        (lambda: tiny_preprocessor(doc_stride=0), "`doc_stride` must be a positive integer"),
        (lambda: model.answer(QUESTIONS[0], CONTEXTS), "1 in `questions`, 3 in `contexts`"),
        (lambda: model.answer(*X, top_k=0), "`top_k` must be a positive integer"),
        (
            lambda: model.answer(*X, max_answer_length=0),
            "`max_answer_length` must be a positive integer",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
