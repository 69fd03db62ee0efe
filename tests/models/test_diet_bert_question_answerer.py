"""Question answering: logits, losses, the data of `fit`, `answer`, and files."""

import inspect
import re

import keras
import numpy as np
import pytest

from keras_diet import layers
from keras_diet.models import (
    DietBertBackbone,
    DietBertMaskedLM,
    DietBertQuestionAnswerer,
    extend_positions,
)
from keras_diet.models.hub import answer_questions
from keras_diet.models.hub.array_batches import ArrayBatches
from tests.helpers import assert_close, gradients, to_numpy
from tests.models.multilingual import multilingual_tokenizer
from tests.models.question_answering import (
    ANSWERS,
    CONTEXTS,
    DOC_STRIDE,
    QUESTIONS,
    SEQUENCE_LENGTH,
    tiny_preprocessor,
    tiny_question_answerer,
)
from tests.models.tiny import random_inputs, randomize_weights, tiny_backbone

any_backend = pytest.mark.any_backend
X = (QUESTIONS, CONTEXTS)
NUM_WINDOWS, POSITIONS = 6, {"start": [6, 0, 0, 0, 5, 0], "end": [7, 0, 0, 0, 7, 0]}
WEIGHTS = [2.0, 3.0, 5.0]
OUTPUTS = ("start", "end")


def random_question_answerer(seed=0, **arguments):
    return randomize_weights(tiny_question_answerer(**arguments), seed)


def preprocessed():
    inputs = tiny_preprocessor()(X)
    return {name: to_numpy(array) for name, array in inputs.items()}


# === Outputs ===


def by_hand(question_answerer, inputs):
    """The logits from the hidden states, with -1e9 where no answer can begin or end."""
    hidden_states = to_numpy(question_answerer.backbone(inputs)["sequence_output"])
    kernel, bias = map(to_numpy, question_answerer.output_dense.weights)
    logits = hidden_states @ kernel + bias
    for row, (segments, mask) in enumerate(
        zip(inputs["segment_ids"], inputs["padding_mask"], strict=True)
    ):
        last = int(np.sum(mask)) - 1
        for position in range(len(segments)):
            is_context = segments[position] == 1 and position < last
            if position != 0 and not is_context:
                logits[row, position] = -1e9
    return {"start": logits[..., 0], "end": logits[..., 1]}


def test_logits_of_positions_that_cannot_win_are_excluded():
    model, inputs = random_question_answerer(), preprocessed()
    expected, found = by_hand(model, inputs), model(inputs)
    assert set(found) == set(OUTPUTS)
    for name in OUTPUTS:
        assert_close(found[name], expected[name], 1e-5)
        # [CLS], and 6, 5, 4, 7, 7 and 6 tokens of the contexts.
        assert (to_numpy(found[name]) > -1e8).sum(-1).tolist() == [7, 6, 5, 8, 8, 7]
    assert np.abs(expected["start"] - expected["end"]).max() > 0.1


@any_backend
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16"])
def test_half_precision_has_logits_in_float32(policy):
    model = random_question_answerer(dtype=policy)
    outputs = model(preprocessed())
    losses = model.compute_loss(
        y={name: np.array(rows) for name, rows in POSITIONS.items()}, y_pred=outputs
    )
    assert keras.backend.standardize_dtype(outputs["end"].dtype) == "float32"
    assert np.isfinite(to_numpy(losses))
    assert to_numpy(outputs["end"])[0, 1] == np.float32(-1e9)


def test_the_loss_is_the_mean_of_both_cross_entropies():
    model, inputs = random_question_answerer(), preprocessed()
    labels = {name: np.array(rows) for name, rows in POSITIONS.items()}
    weights = np.array([2, 2, 3, 5, 5, 5.0])
    logits = by_hand(model, inputs)
    losses = []
    for name in OUTPUTS:
        rows = logits[name].astype("float64")
        normalizer = np.log(np.exp(rows - rows.max(-1, keepdims=True)).sum(-1)) + rows.max(-1)
        losses.append(np.mean(weights * (normalizer - rows[np.arange(6), labels[name]])))
    found = model.evaluate(X, ANSWERS, sample_weight=WEIGHTS, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert found["start_loss"] == pytest.approx(losses[0], rel=1e-5)
    accuracy = np.mean(logits["end"].argmax(-1) == labels["end"])
    assert found["end_accuracy"] == pytest.approx(accuracy)
    # The same without a preprocessor.
    model.preprocessor = None
    split = model.evaluate(inputs, labels, sample_weight=weights, verbose=0, return_dict=True)
    assert split["loss"] == pytest.approx(found["loss"], rel=1e-6)


def test_every_weight_but_the_pooler_has_a_gradient():
    model, inputs = random_question_answerer(), preprocessed()
    labels = {name: np.array(rows) for name, rows in POSITIONS.items()}
    found = gradients(
        lambda: model.compute_loss(y=labels, y_pred=model(inputs)), model.trainable_variables
    )
    for variable, gradient in zip(model.trainable_variables, found, strict=True):
        # The softmax removes what all positions have in common.
        removed = r"attention/key/bias$|feedforward_layer_norm/beta$|logits/bias$"
        unused = re.search(f"pooled_dense/|{removed}", variable.path)
        assert (np.abs(gradient).max() > 1e-5) != bool(unused), variable.path


@any_backend
def test_other_losses_and_metrics():
    model = tiny_question_answerer()
    assert float(model.optimizer.learning_rate) == pytest.approx(5e-5)
    loss = keras.losses.CategoricalFocalCrossentropy(from_logits=True)
    model.compile("sgd", {"start": loss, "end": loss})
    one_hot = {name: np.eye(11)[rows] for name, rows in POSITIONS.items()}
    model.preprocessor = None
    found = model.evaluate(preprocessed(), one_hot, verbose=0, return_dict=True)
    assert set(found) == {"loss", "start_loss", "end_loss"}
    assert found["loss"] == pytest.approx(found["start_loss"] + found["end_loss"])
    with pytest.warns(
        UserWarning, match="takes probabilities here, but `DietBertQuestionAnswerer`"
    ):
        model.compile(loss="sparse_categorical_crossentropy")


# === Data ===


class Rows:
    """Collects the batches that a model sees. Keras may read the first ones twice."""

    def __init__(self, model):
        self.rows = []
        original = model.preprocess_samples

        def preprocess_samples(x, y=None, sample_weight=None):
            self.rows.append((x, y, sample_weight))
            return original(x, y, sample_weight)

        object.__setattr__(model, "preprocess_samples", preprocess_samples)

    def last(self, number):
        return self.rows[-number:]


def sizes(rows):
    return [len(x["token_ids"]) for x, _, _ in rows]


@any_backend
def test_windows_are_batched_and_shuffled_with_their_labels_and_weights():
    keras.utils.set_random_seed(3)
    model = tiny_question_answerer()
    seen = Rows(model)
    model.fit(X, ANSWERS, sample_weight=WEIGHTS, batch_size=4, epochs=2, verbose=0)
    rows = seen.last(4)
    assert sizes(rows) == [4, 2, 4, 2]
    expected = {
        tuple(ids): (start, end, weight)
        for ids, start, end, weight in zip(
            preprocessed()["token_ids"].tolist(),
            *POSITIONS.values(),
            [2, 2, 3, 5, 5, 5],
            strict=True,
        )
    }
    orders = []
    for epoch in (rows[:2], rows[2:]):
        order = []
        for x, y, weights in epoch:
            for i, ids in enumerate(x["token_ids"].tolist()):
                assert (y["start"][i], y["end"][i], weights[i]) == expected[tuple(ids)]
                order.append(tuple(ids))
        assert sorted(order) == sorted(expected)
        orders.append(order)
    assert orders[0] != orders[1]


@any_backend
def test_validation_split_separates_examples():
    """A third of three examples is the last one, although it has half of the windows."""
    model = tiny_question_answerer()
    seen = Rows(model)
    history = model.fit(X, ANSWERS, validation_split=0.3, shuffle=False, verbose=0).history
    assert sizes(seen.last(2)) == [3, 3]
    found = [x["token_ids"].tolist() for x, _, _ in seen.last(2)]
    assert found[0] + found[1] == preprocessed()["token_ids"].tolist()
    assert {"loss", "val_loss", "val_end_accuracy"} <= set(history)


@any_backend
@pytest.mark.parametrize("kind", ["generator", "PyDataset", "DataLoader"])
def test_datasets_are_expanded_batch_by_batch(kind):
    batches = [
        ((QUESTIONS[:2], CONTEXTS[:2]), {name: rows[:2] for name, rows in ANSWERS.items()}),
        ((QUESTIONS[2:], CONTEXTS[2:]), {name: rows[2:] for name, rows in ANSWERS.items()}),
    ]

    class Dataset(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return batches[index]

    if kind == "generator":
        data = iter(batches)
    elif kind == "PyDataset":
        data = Dataset()
    else:
        torch = pytest.importorskip("torch")
        data = torch.utils.data.DataLoader(batches, batch_size=None)
    model = tiny_question_answerer()
    seen = Rows(model)
    model.fit(data, shuffle=False, verbose=0)
    assert sizes(seen.last(2)) == [3, 3]
    starts = [start for _, y, _ in seen.last(2) for start in y["start"].tolist()]
    assert starts == POSITIONS["start"]


@any_backend("tensorflow")
def test_tf_data():
    tf = pytest.importorskip("tensorflow")
    model = random_question_answerer()
    dataset = tf.data.Dataset.from_tensor_slices((X, ANSWERS, WEIGHTS)).batch(2)
    expected = model.predict(X, verbose=0)
    for name, logits in model.predict(dataset, verbose=0).items():
        assert_close(logits, expected[name], 1e-5)
    # Three windows in the first batch, and three in the second.
    expected = model.evaluate(X, ANSWERS, 3, sample_weight=WEIGHTS, verbose=0)
    assert model.evaluate(dataset, verbose=0) == pytest.approx(expected, rel=1e-5)
    model.fit(dataset, validation_data=dataset, verbose=0)
    wrong = {**ANSWERS, "answer_start": [10, -1, 17]}
    with pytest.raises(tf.errors.InvalidArgumentError, match="'the lazy dog' with the start 17"):
        model.fit(tf.data.Dataset.from_tensor_slices((X, wrong)).batch(3), verbose=0)


def test_methods_of_one_batch():
    model = random_question_answerer()
    logits = model.predict(X, verbose=0)
    for name, found in model.predict_on_batch(X).items():
        assert found.shape == (NUM_WINDOWS, SEQUENCE_LENGTH)
        assert_close(found, logits[name], 1e-5)
    expected = model.evaluate(X, ANSWERS, verbose=0, return_dict=True)
    assert model.test_on_batch(X, ANSWERS, return_dict=True) == pytest.approx(expected, rel=1e-5)
    before = to_numpy(model.output_dense.kernel)
    found = model.train_on_batch(X, ANSWERS, return_dict=True)
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert np.any(to_numpy(model.output_dense.kernel) != before)


WRONG = {
    "no answers": ((X,), "needs labels for its loss"),
    "answer elsewhere": (
        (X, {**ANSWERS, "answer_start": [10, -1, 17]}),
        "'the lazy dog' with the start 17 in row 2",
    ),
    "unequal lists": ((X, {"text": [""], "answer_start": [-1]}), "3 in `x`, 1 in `y`"),
    "unequal contexts": (((QUESTIONS, CONTEXTS[:2]), ANSWERS), "batch sizes [3, 2]"),
    "positions": ((X, {"start": [0, 0, 0], "end": [0, 0, 0]}), "`y` must be the answers"),
    "single texts": ((QUESTIONS, ANSWERS), "`x` must be a tuple (questions, contexts)"),
    "empty context": (((["a"], [" "]), {"text": [""], "answer_start": [-1]}), "not empty"),
}


@any_backend
@pytest.mark.parametrize("case", WRONG)
def test_wrong_data_is_refused(case):
    arguments, message = WRONG[case]
    model = tiny_question_answerer()
    for call in (
        lambda: model.fit(*arguments, verbose=0),
        lambda: model.evaluate(*arguments, verbose=0),
        lambda: model.train_on_batch(*arguments),
        lambda: model.fit(X, ANSWERS, validation_data=arguments, verbose=0),
        lambda: model.fit(iter([arguments]), verbose=0),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            call()


@any_backend
def test_a_wrong_answer_is_named_by_its_row_before_the_split():
    wrong = {**ANSWERS, "answer_start": [10, -1, 17]}
    with pytest.raises(ValueError, match="with the start 17 in row 2"):
        tiny_question_answerer().fit(X, wrong, validation_split=0.5, verbose=0)


@any_backend
@pytest.mark.parametrize(
    ("y", "message"),
    [
        ({"start": [0] * 5 + [13], "end": [0] * 6}, "[0, max_sequence_length) = [0, 13)"),
        ({"start": [0] * 6, "end": [0.5] * 6}, "must be integers"),
        ({"start": [0] * 6, "ends": [0] * 6}, "Received: the keys 'start', 'ends'"),
        ({"start": [[0, 1]] * 6, "end": [0] * 6}, "must be one integer for each example"),
    ],
)
def test_wrong_positions_are_refused(y, message):
    model = tiny_question_answerer(with_preprocessor=False)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.evaluate(preprocessed(), y, verbose=0)


@any_backend
def test_class_weights_are_refused():
    with pytest.raises(ValueError, match="needs the labels of a single output"):
        tiny_question_answerer().fit(X, ANSWERS, class_weight={0: 2.0}, verbose=0)


# === Answers ===


def spans_by_loops(model, question, context, max_answer_length):
    """Scores of all spans of characters of a context, window by window, and the null score."""
    tokenizer = model.preprocessor.tokenizer
    question_ids, (ids, offsets) = tokenizer(question), tokenizer.tokenize_with_offsets(context)
    room = SEQUENCE_LENGTH - 3 - len(question_ids)
    scores, null_score, first = {}, np.inf, 0
    while True:
        part = ids[first : first + room]
        tokens = [2, *map(int, question_ids), 3, *part, 3]
        segments = [0] * (2 + len(question_ids)) + [1] * (len(part) + 1)
        inputs = {"token_ids": tokens, "segment_ids": segments, "padding_mask": [1] * len(tokens)}
        # A batch of one window without padding.
        logits = model({name: np.array([row], "int32") for name, row in inputs.items()})
        start, end = (to_numpy(logits[name])[0].astype("float64") for name in OUTPUTS)
        null_score = min(null_score, start[0] + end[0])
        for i in range(len(part)):
            for j in range(i, min(i + max_answer_length, len(part))):
                place = offsets[first + i][0], offsets[first + j][1]
                score = start[2 + len(question_ids) + i] + end[2 + len(question_ids) + j]
                scores[place] = max(score, scores.get(place, -np.inf))
        if first + room >= len(ids):
            return scores, null_score
        first += DOC_STRIDE


@any_backend
def test_logits_depend_neither_on_the_batch_nor_on_other_windows():
    model = random_question_answerer()
    logits = model.predict(X, verbose=0)
    for found, rows in (
        (model.predict(X, batch_size=1, verbose=0), slice(0, 6)),
        (model.predict((QUESTIONS[2:], CONTEXTS[2:]), verbose=0), slice(3, 6)),
        # The first window alone: the first seven tokens of the context.
        (model.predict((QUESTIONS[2], CONTEXTS[2][:26]), verbose=0), slice(3, 4)),
    ):
        for name in OUTPUTS:
            assert_close(found[name], logits[name][rows], 1e-5)


@any_backend
@pytest.mark.parametrize("seed", range(3))
def test_answers_against_loops(seed):
    """Each expected answer comes from windows that the model gets one by one, without padding."""
    model = random_question_answerer(seed)
    answers = model.answer(*X, top_k=5, max_answer_length=3, batch_size=4)
    for question, context, found in zip(*X, answers, strict=True):
        scores, null_score = spans_by_loops(model, question, context, 3)
        best = sorted(scores, key=scores.get, reverse=True)[:5]
        assert [(each["start"], each["end"]) for each in found] == best
        for each in found:
            assert each["text"] == context[each["start"] : each["end"]]
            assert each["score"] == pytest.approx(scores[each["start"], each["end"]], abs=1e-4)
            assert each["null_score"] == pytest.approx(null_score, abs=1e-4)
    if seed == 0:
        # Some answers can only come from the second window of the third context.
        assert any(each["start"] > 27 for each in answers[2])


@any_backend
def test_forms_of_arguments_and_results():
    model = random_question_answerer()
    answers = model.answer(*X)
    assert [set(each) for each in answers] == 3 * [{"text", "score", "start", "end", "null_score"}]
    one = model.answer(QUESTIONS[2], CONTEXTS[2])
    assert one["text"] == answers[2]["text"]
    assert one["score"] == pytest.approx(answers[2]["score"], abs=1e-5)
    assert isinstance(one["score"], float)
    assert isinstance(one["start"], int)
    (best, second) = model.answer(QUESTIONS[2], CONTEXTS[2], top_k=2)
    assert best == one
    assert second["score"] < best["score"]
    ((of_array,),) = model.answer(np.array(QUESTIONS[2:]), np.array(CONTEXTS[2:]), top_k=1)
    assert of_array == pytest.approx(one) or of_array["text"] == one["text"]


@any_backend
def test_buckets_do_not_change_answers():
    model = random_question_answerer()
    expected = model.answer(*X)
    model.preprocessor = tiny_preprocessor(length_buckets=(7, 10))
    for found, each in zip(model.answer(*X, batch_size=1), expected, strict=True):
        assert found["text"] == each["text"]
        assert found["score"] == pytest.approx(each["score"], abs=1e-4)


@any_backend
def test_windows_have_the_shortest_bucket(monkeypatch):
    """Windows of 10 tokens have the length 10, and those of 11 tokens have the length 11."""
    shapes = []

    def batches(data, batch_size):
        shapes.append(data[0]["token_ids"].shape)
        return ArrayBatches(data, batch_size)

    monkeypatch.setattr(answer_questions, "ArrayBatches", batches)
    model = random_question_answerer()
    model.preprocessor = tiny_preprocessor(length_buckets=(7, 10))
    model.answer(*X)
    assert shapes == [(3, 10), (3, 11)]


@any_backend
def test_defaults_of_answer_are_those_of_bert():
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(DietBertQuestionAnswerer.answer).parameters.items()
    }
    assert (defaults["n_best"], defaults["max_answer_length"]) == (20, 30)
    assert (defaults["top_k"], defaults["null_threshold"]) == (None, None)


@any_backend
@pytest.mark.parametrize("bias", [[np.nan, 0.0], [0.0, np.inf]], ids=["start", "end"])
def test_logits_that_are_not_finite_are_refused(bias):
    model = random_question_answerer()
    model.output_dense.bias.assign(bias)
    with pytest.raises(ValueError, match=r"finite logits\. Received: NaN or infinite"):
        model.answer(*X)


@any_backend
def test_answers_of_pieces_have_no_white_space_around():
    """An unknown word has a token of white space before it, which belongs to no answer."""
    tokenizer = multilingual_tokenizer()
    context = "the fox œ dog œ the fox"
    _, offsets = tokenizer.tokenize_with_offsets(context)
    empty = [i for i, (start, end) in enumerate(offsets) if start == end]
    assert len(empty) == 2
    preprocessor = tiny_preprocessor(tokenizer=tokenizer, sequence_length=37)
    backbone = tiny_backbone(
        num_layers=1, vocabulary_size=tokenizer.vocabulary_size(), max_sequence_length=37
    )
    for seed in range(5):
        model = randomize_weights(DietBertQuestionAnswerer(backbone, preprocessor), seed)
        answers = model.answer("fox", context, top_k=20)
        places = [(each["start"], each["end"]) for each in answers]
        assert len(set(places)) == 20
        assert all(start < end for start, end in places)
        assert all(each["text"] == each["text"].strip() for each in answers)


@any_backend
def test_no_answer_wins_by_its_threshold():
    model = random_question_answerer()
    best = model.answer(*X)
    for row, each in enumerate(best):
        difference = each["null_score"] - each["score"]
        for threshold, is_empty in ((difference + 1e-3, False), (difference - 1e-3, True)):
            found = model.answer(*X, null_threshold=threshold, top_k=2)[row]
            assert len(found) == 2
            if is_empty:
                empty = {"text": "", "score": each["null_score"], "start": -1, "end": -1}
                assert found[0] == pytest.approx({**empty, "null_score": each["null_score"]})
            assert found[is_empty]["text"] == each["text"]


@any_backend
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"questions": QUESTIONS[:2]}, "Received: 2 questions and 3 contexts. Repeat a context"),
        ({"contexts": CONTEXTS[:2]}, "Received: 3 questions and 2 contexts. Repeat a context"),
        ({"questions": QUESTIONS[0]}, "Received: str and list. Put each single string"),
        ({"contexts": CONTEXTS[0]}, "`questions` and `contexts` must both be strings, or both"),
        (
            {"contexts": [*CONTEXTS[:2], None]},
            "`contexts` must hold strings. Received: None in row 2",
        ),
        ({"questions": 7, "contexts": 8}, "`questions` must be a string or a list"),
        ({"questions": [], "contexts": []}, "`questions` must hold at least one example"),
        ({"questions": ["the", " ", "a"]}, "`questions` must hold texts that are not empty."),
        ({"contexts": ["the", "a", ""]}, "`contexts` must hold texts that are not empty."),
        # As `zip` makes them.
        (
            {"questions": tuple(QUESTIONS), "contexts": tuple(CONTEXTS)},
            "`questions` must be a string or a list of strings. Received: tuple.",
        ),
        ({"n_best": 0}, "`n_best` must be a positive integer"),
        ({"top_k": 21}, "`top_k` must be at most `n_best`, 20"),
        ({"max_answer_length": 2.5}, "`max_answer_length` must be a positive integer"),
        ({"null_threshold": "0"}, "`null_threshold` must be a number"),
        ({"null_threshold": float("nan")}, "Received: null_threshold=nan"),
        ({"batch_size": 0}, "`batch_size` must be a positive integer"),
    ],
    ids=str,
)
def test_wrong_arguments_of_answer_are_refused(arguments, message):
    model = tiny_question_answerer()
    with pytest.raises(ValueError, match=re.escape(message)):
        model.answer(**{"questions": QUESTIONS, "contexts": CONTEXTS, **arguments})


@any_backend
def test_answer_needs_the_preprocessor():
    with pytest.raises(ValueError, match=r"needs a preprocessor\. Received: preprocessor=None"):
        tiny_question_answerer(with_preprocessor=False).answer(*X)


@any_backend
def test_training_finds_answers_in_any_window_and_no_answers():
    """The answer of the third question is in its second window only."""
    keras.utils.set_random_seed(1)
    model = tiny_question_answerer()
    model.compile(keras.optimizers.Adam(0.02), jit_compile=False)
    model.fit(X, ANSWERS, epochs=25, batch_size=3, verbose=0)
    found = model.answer(*X, null_threshold=0.0)
    assert [each["text"] for each in found] == ANSWERS["text"]
    assert [each["start"] for each in found] == ANSWERS["answer_start"]


# === Files ===


@pytest.fixture
def trained():
    return random_question_answerer(rank=7, sharing="head-wise")


def assert_same(found, expected, inputs):
    for name in OUTPUTS:
        assert_close(found(inputs)[name], expected(inputs)[name], 1e-6)


@any_backend
def test_presets_have_the_head(rng, tmp_path, trained):
    trained.save_to_preset(str(tmp_path))
    loaded = DietBertQuestionAnswerer.from_preset(str(tmp_path))
    assert_same(loaded, trained, random_inputs(rng))
    assert loaded.preprocessor.get_config() == trained.preprocessor.get_config()
    (first, *_), (second, *_) = (model.answer(*X) for model in (loaded, trained))
    assert first["text"] == second["text"]


@any_backend
def test_the_head_is_new_on_presets_of_other_tasks(rng, tmp_path, trained):
    DietBertMaskedLM(trained.backbone).save_to_preset(str(tmp_path))
    loaded = DietBertQuestionAnswerer.from_preset(str(tmp_path), preprocessor=None)
    inputs = random_inputs(rng)
    expected = trained.backbone(inputs)["sequence_output"]
    assert_close(loaded.backbone(inputs)["sequence_output"], expected, 1e-6)
    assert np.all(to_numpy(loaded.output_dense.bias) == 0)


@any_backend
def test_keras_files_and_copies(rng, tmp_path, trained):
    trained.save(tmp_path / "task.keras")
    loaded = keras.saving.load_model(tmp_path / "task.keras")
    assert type(loaded) is DietBertQuestionAnswerer
    assert_same(loaded, trained, random_inputs(rng))
    assert loaded.evaluate(X, ANSWERS, verbose=0) == pytest.approx(
        trained.evaluate(X, ANSWERS, verbose=0), rel=1e-5
    )
    copy = DietBertQuestionAnswerer.from_config(trained.get_config())
    assert copy.count_params() == trained.count_params()


@any_backend
def test_lora_trains_adapters_and_the_head(trained):
    trained.backbone.enable_lora(rank=2)
    trained.compile("sgd")
    before = {weight.path: to_numpy(weight) for weight in trained.weights}
    for _ in range(2):
        trained.fit(X, ANSWERS, verbose=0)
    changed = {w.path for w in trained.weights if np.any(to_numpy(w) != before[w.path])}
    head = {weight.path for weight in trained.output_dense.weights}
    assert head - {trained.output_dense.bias.path} <= changed
    assert changed <= head | {path for path in before if "lora_kernel" in path}
    assert any("lora_kernel" in path for path in changed)


@any_backend
def test_quantized_backbones_answer(trained):
    expected = trained.answer(*X)
    trained.quantize("int8")
    for found, each in zip(trained.answer(*X), expected, strict=True):
        assert found["score"] == pytest.approx(each["score"], abs=0.3)


@any_backend
def test_from_bert_makes_a_new_head():
    import keras_hub

    bert = keras_hub.models.BertBackbone(31, 1, 3, 15, 23, max_sequence_length=13)
    model = DietBertQuestionAnswerer.from_bert(bert, "input", tiny_preprocessor())
    inputs = preprocessed()
    expected = bert(inputs)["sequence_output"]
    assert_close(model.backbone(inputs)["sequence_output"], expected, 1e-5)
    assert model.answer(*X)


@any_backend
def test_from_bert_asks_the_tokenizer_for_the_id_of_cls(rng):
    """The token embedding of [CLS] gets the position that only it has."""
    import keras_hub

    bert = randomize_weights(
        keras_hub.models.BertBackbone(31, 1, 3, 15, 23, max_sequence_length=13)
    )
    expected = DietBertBackbone.from_bert(bert, "diet_rel", cls_token_id=2)
    other = DietBertBackbone.from_bert(bert, "diet_rel")
    model = DietBertQuestionAnswerer.from_bert(bert, "diet_rel", tiny_preprocessor())
    table = to_numpy(model.backbone.token_embedding.embeddings)
    assert_close(table, expected.token_embedding.embeddings, 1e-6)
    assert np.abs(table - to_numpy(other.token_embedding.embeddings)).max() > 1e-2
    arguments = {"preprocessor": tiny_preprocessor(), "cls_token_id": 5}
    given = DietBertQuestionAnswerer.from_bert(bert, "diet_rel", **arguments).backbone
    expected = DietBertBackbone.from_bert(bert, "diet_rel", cls_token_id=5)
    assert_close(
        given.token_embedding.embeddings, to_numpy(expected.token_embedding.embeddings), 1e-6
    )


@any_backend
@pytest.mark.parametrize("argument", ["num_classes", "dropout"])
def test_unknown_arguments_are_refused(argument):
    backbone = DietBertBackbone(31, 1, 3, 15, 23, max_sequence_length=13)
    with pytest.raises(TypeError, match=argument):
        DietBertQuestionAnswerer(backbone, **{argument: 2})


@any_backend
@pytest.mark.parametrize("source", ["folder", "model"])
def test_logits_are_those_of_hugging_face(tmp_path, rng, source):
    pytest.importorskip("transformers")
    from tests.models.test_hugging_face import make, outputs

    bert = make(tmp_path, "BertForQuestionAnswering")
    bert.qa_outputs.weight.data.normal_(std=0.7)
    bert.qa_outputs.bias.data.normal_(std=0.7)
    bert.save_pretrained(tmp_path)
    model = DietBertQuestionAnswerer.from_bert(tmp_path if source == "folder" else bert, "input")
    inputs = preprocessed()
    expected = outputs(bert, inputs)
    is_allowed = to_numpy(model(inputs)["start"]) > -1e8
    for name in OUTPUTS:
        logits = expected[f"{name}_logits"].numpy()
        assert np.ptp(logits) > 0.3
        assert_close(to_numpy(model(inputs)[name])[is_allowed], logits[is_allowed], 1e-4)


@any_backend
def test_copies_with_cached_or_longer_positions(trained):
    inputs = preprocessed()
    cached = layers.cache_positions(trained)
    assert_same(cached, trained, inputs)
    assert [each["text"] for each in cached.answer(*X)] == [
        each["text"] for each in trained.answer(*X)
    ]
    longer = extend_positions(trained, 17)
    assert longer.backbone.max_sequence_length == 17
    found = longer.evaluate(X, ANSWERS, verbose=0, return_dict=True)
    assert set(found) == set(trained.evaluate(X, ANSWERS, verbose=0, return_dict=True))
    assert found["loss"] == pytest.approx((found["start_loss"] + found["end_loss"]) / 2)


def test_exported_models_have_two_outputs(tmp_path, trained):
    backend = keras.config.backend()
    inputs = preprocessed()
    expected = {name: to_numpy(logits) for name, logits in trained(inputs).items()}
    if backend == "torch":
        import torch

        trained.export(tmp_path / "model.pt2", verbose=False)
        program = torch.export.load(tmp_path / "model.pt2").module()
        tensors = {name: torch.tensor(array[:1].astype("int32")) for name, array in inputs.items()}
        found = {name: to_numpy(logits) for name, logits in program(tensors).items()}
        expected = {name: logits[:1] for name, logits in expected.items()}
    else:
        tf = pytest.importorskip("tensorflow")
        trained.export(tmp_path / "model", verbose=False)
        loaded = tf.saved_model.load(str(tmp_path / "model"))
        tensors = {name: tf.constant(array.astype("int32")) for name, array in inputs.items()}
        found = {name: np.asarray(logits) for name, logits in loaded.serve(tensors).items()}
    for name in OUTPUTS:
        assert_close(found[name], expected[name], 1e-5)
