"""What enters `fit`, `evaluate` and `predict`: one contract for all kinds of data, and their order.

A row of `DATASETS` or `COLUMNS` is a kind of data. A new kind is one more row.
"""

import collections

import grain
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_diet.training import EpochDataset, ExactResume
from tests.helpers import assert_all_close, to_numpy
from tests.models.tasks import batches, tiny_preprocessor, tiny_task
from tests.models.tiny import TEXTS, VOCABULARY, random_inputs, randomize_weights

pytestmark = [
    pytest.mark.any_backend,
    # Keras says it when a generator ends.
    pytest.mark.filterwarnings("ignore:Your input ran out of data"),
]
# 5 examples in batches of 2: the last batch is smaller.
SECOND = TEXTS[2:] + TEXTS[:2]
LABELS = np.array([6, 2, 0, 3, 1])
WEIGHTS = np.array([0.5, 2.0, 1.0, 0.25, 4.0], "float32")
CLASS_WEIGHT = {6: 0.5, 2: 2.0, 3: 0.25, 1: 4.0}


class PyDataset(keras.utils.PyDataset):
    def __init__(self, elements, **arguments):
        super().__init__(**arguments)
        self.elements, self.events = elements, []

    def __len__(self):
        return len(self.elements)

    def __getitem__(self, index):
        return self.elements[index]

    def on_epoch_begin(self):
        self.events.append("begin")

    def on_epoch_end(self):
        self.events.append("end")


class Unsized:
    """An object without a length that starts again for each `iter`."""

    def __init__(self, elements):
        self.elements = elements

    def __iter__(self):
        return iter(self.elements)


def tf_data(*parts):
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices(parts).batch(2)


def examples(parts):
    transposed = [list(zip(*p, strict=True)) if isinstance(p, tuple) else p for p in parts]
    return list(zip(*transposed, strict=True))


def data_loader(*parts):
    return pytest.importorskip("torch").utils.data.DataLoader(examples(parts), batch_size=2)


def grain_dataset(*parts):
    return grain.MapDataset.source(examples(parts)).batch(2)


DATASETS = {
    "PyDataset": lambda *parts: PyDataset(batches(*parts)),
    "list of batches": lambda *parts: collections.UserList(batches(*parts)),
    "iterable without length": lambda *parts: Unsized(batches(*parts)),
    "generator": lambda *parts: iter(batches(*parts)),
    "Grain": grain_dataset,
    "Grain's iterator": lambda *parts: grain_dataset(*parts).to_iter_dataset(),
    "DataLoader": data_loader,
    "tf.data": tf_data,
    "tf.data without length": lambda *parts: tf_data(*parts).filter(lambda *_: True),
}


class Column(collections.abc.Sequence):
    """A column of a dataset of Hugging Face: neither a list nor an array."""

    def __init__(self, values):
        self.values = values

    def __getitem__(self, index):
        return self.values[index]

    def __len__(self):
        return len(self.values)


class Series:
    """A column of pandas, which is not a dependency."""

    def __init__(self, values):
        self.values, self.shape = values, (len(values),)

    def __getitem__(self, rows):
        return type(self)(self.values[rows])

    def to_list(self):
        return list(self.values)


class PolarsSeries(Series):
    """A column of polars: its dtype has neither a kind nor a name of NumPy's."""

    dtype = object()

    def __array__(self, *args, **kwargs):
        # Numbers for categories, as polars returns them.
        return np.arange(len(self.values))


class Chunks:
    """A column of pyarrow in several chunks, with neither a shape nor the methods of lists."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, rows):
        return Chunks(self.values[rows]) if isinstance(rows, slice) else object()

    def __array__(self, *args, **kwargs):
        return np.array(self.values)

    def to_pylist(self):
        return list(self.values)


# `datasets` has the class in a module of its own.
Column.__module__ = "datasets.arrow_dataset"


# How a column holds texts, and how it holds labels and weights.
COLUMNS = {
    "list": (list, np.ndarray.tolist),
    "strings": (np.array, np.array),
    "objects": (lambda values: np.array(values, dtype=object), lambda array: array[:, None]),
    "bytes": (lambda values: [value.encode() for value in values], np.array),
    "array of bytes": (lambda values: np.array(values).astype("S"), np.array),
    "nothing masked": (lambda values: np.ma.array(values, mask=False), np.array),
    "Hugging Face": (Column, lambda array: Column(array.tolist())),
    "pandas": (Series, lambda array: Series(array.tolist())),
    "polars": (PolarsSeries, lambda array: PolarsSeries(array.tolist())),
    "pyarrow": (Chunks, lambda array: Chunks(array.tolist())),
}


def make_columns(kind, x, *numbers):
    of_texts, of_numbers = COLUMNS[kind]
    x = tuple(map(of_texts, x)) if isinstance(x, tuple) else of_texts(x)
    return (x, *map(of_numbers, numbers))


def call(method, data, **arguments):
    """Call `fit`, `evaluate` or `predict` with a tuple of columns or with a dataset."""
    if not isinstance(data, tuple):
        return method(data, verbose=0, **arguments)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    if method.__name__ != "predict":
        arguments = {"y": y, "sample_weight": sample_weight, **arguments}
    return method(x, batch_size=2, verbose=0, **arguments)


class Steps(keras.callbacks.Callback):
    """The number of steps of each epoch, and of each validation."""

    def __init__(self):
        super().__init__()
        self.trained, self.validated = [], []

    def on_epoch_begin(self, epoch, logs=None):
        self.trained.append(0)

    def on_train_batch_end(self, batch, logs=None):
        self.trained[-1] += 1

    def on_test_begin(self, logs=None):
        self.validated.append(0)

    def on_test_batch_end(self, batch, logs=None):
        self.validated[-1] += 1


def close(expected):
    return pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.fixture(scope="module")
def model():
    """A model in whose steps nothing is learned, so that training is like evaluation."""
    model = randomize_weights(tiny_task("classifier"))
    model.output_dropout.rate = 0.0
    model.compile(keras.optimizers.SGD(0.0))
    return model


@pytest.fixture(scope="module")
def expected(model):
    """The outputs for all texts and for all pairs, and the weighted loss."""
    outputs = to_numpy(model(model.preprocessor(TEXTS)))
    pairs = to_numpy(model(model.preprocessor((TEXTS, SECOND))))
    losses = keras.losses.sparse_categorical_crossentropy(LABELS, outputs, from_logits=True)
    return outputs, pairs, to_numpy(losses) @ WEIGHTS / 5


# === Kinds of data ===


@pytest.mark.parametrize("kind", [*DATASETS, "list"])
def test_contract_of_data(model, expected, kind):
    def make(*parts):
        return DATASETS[kind](*parts) if kind in DATASETS else make_columns(kind, *parts)

    outputs, pairs, loss = expected
    assert call(model.predict, make(TEXTS)) == close(outputs)
    # Labels are not read.
    assert call(model.predict, make((TEXTS, SECOND), np.full(5, -1))) == close(pairs)
    weighted = (TEXTS, LABELS, WEIGHTS)
    assert call(model.evaluate, make(*weighted))[0] == close(loss)
    data, steps = make(*weighted), Steps()
    epochs = 1 if hasattr(data, "__next__") else 2
    options = {"validation_data": make(*weighted), "epochs": epochs, "callbacks": [steps]}
    history = call(model.fit, data, **options).history
    assert history["loss"] + history["val_loss"] == close([loss] * 2 * epochs)
    assert steps.trained == [3] * epochs
    assert steps.validated == [3] * epochs
    if kind != "generator":
        # Keras refuses weights of classes for generators.
        history = call(model.fit, make(TEXTS, LABELS), class_weight=CLASS_WEIGHT).history
        assert history["loss"] == close([loss])


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_each_kind_make_the_same_batches(model, kind):
    for x in (TEXTS, (TEXTS, SECOND)):
        found, expected = (
            model.batches(*make_columns(each, x, LABELS, WEIGHTS), batch_size=2)
            for each in (kind, "list")
        )
        assert found.num_batches == 3
        for index in range(3):
            assert_all_close(found.batch(0, index), expected.batch(0, index), 0)


def test_methods_of_one_batch(model, expected):
    outputs, _, loss = expected
    assert model.predict_on_batch(TEXTS) == close(outputs)
    assert model.test_on_batch(TEXTS, LABELS, WEIGHTS)[0] == close(loss)
    assert model.train_on_batch(TEXTS, LABELS, class_weight=CLASS_WEIGHT)[0] == close(loss)
    with pytest.raises(ValueError, match="`class_weight` must be"):
        model.train_on_batch(TEXTS, LABELS, class_weight={7: 2.0})


def test_predict_calls_callbacks(model, expected, capsys):
    class Observed(keras.callbacks.Callback):
        def __init__(self, last):
            super().__init__()
            self.last, self.batches = last, []

        def on_predict_batch_end(self, batch, logs=None):
            self.batches.append(to_numpy(logs["outputs"]))
            self.model.stop_predicting = batch == self.last

    options = {"batch_size": 2, "verbose": 1}
    for last, steps, rows in ((2, None, 5), (0, None, 2), (2, 2, 4)):
        observed = Observed(last)
        found = model.predict(TEXTS, steps=steps, callbacks=[observed], **options)
        assert found == close(expected[0][:rows])
        assert np.concatenate(observed.batches) == close(found)
        assert f"/{steps or 3}" in capsys.readouterr().out
    assert model.predict(TEXTS, batch_size=2, steps=9, verbose=0) == close(expected[0])
    observed = Observed(9)
    assert model.infer(model.preprocessor(TEXTS), 2, callbacks=[observed]) == close(expected[0])
    assert [len(outputs) for outputs in observed.batches] == [2, 2, 1]


@pytest.mark.any_backend("jax")
@pytest.mark.parametrize("method", ["predict", "evaluate"])
def test_models_survive_a_batch_that_is_refused(model, expected, method):
    data = PyDataset([*batches(TEXTS, LABELS), ([None], np.array([2]))])
    with pytest.raises(ValueError, match="`x` must hold strings"):
        getattr(model, method)(data, verbose=0)
    # An eager call, which does not ask Keras for the weights.
    assert to_numpy(model(model.preprocessor(TEXTS))) == close(expected[0])


@pytest.mark.any_backend("jax")
@pytest.mark.parametrize(
    ("options", "calls"), [({}, 1), ({"run_eagerly": True}, 3), ({"jit_compile": False}, 3)]
)
def test_eager_models_call_their_layers_each_time(monkeypatch, options, calls):
    model, seen = tiny_task("classifier"), []
    model.compile("sgd", **options)
    call = model.output_dropout.call
    watched = lambda x, **options: seen.append(0) or call(x, **options)  # noqa: E731
    monkeypatch.setattr(model.output_dropout, "call", watched)
    for _ in range(3):
        model.predict(TEXTS, verbose=0)
    assert len(seen) == calls


def test_validation_steps_are_not_counted(model):
    def elements():
        for index in range(30):
            assert index < 20, "The data is read to its end."
            yield TEXTS[:2], LABELS[:2]

    class Endless:
        def __iter__(self):
            return elements()

    data = {"validation_data": Endless(), "validation_steps": 2}
    assert len(call(model.fit, (TEXTS, LABELS), **data).history["val_loss"]) == 1


def test_one_text_is_a_batch_of_one(model, expected):
    outputs, pairs, _ = expected
    for one in (TEXTS[1], TEXTS[1].encode(), np.str_(TEXTS[1]), np.array(TEXTS[1]), [TEXTS[1]]):
        assert model.predict(one, verbose=0) == close(outputs[1:2])
    assert model.predict((TEXTS[3], SECOND[3]), verbose=0) == close(pairs[3:4])
    assert model.batches(["fox"] * 33, labels=False).num_batches == 2


def test_validation_split_takes_the_last_rows(model):
    steps = Steps()
    data = ((TEXTS, SECOND), LABELS, WEIGHTS)
    # 3.5 examples for training are cut down to 3, as in Keras, and not rounded to 4.
    options = {"validation_split": 0.3, "validation_batch_size": 1, "callbacks": [steps]}
    history = call(model.fit, data, **options).history
    assert (steps.trained, steps.validated) == ([2], [2])
    for rows, name in ((slice(3), "loss"), (slice(3, 5), "val_loss")):
        part = ((TEXTS[rows], SECOND[rows]), LABELS[rows], WEIGHTS[rows])
        assert history[name][0] == close(call(model.evaluate, part)[0])


def test_a_dataset_is_not_split(model):
    with pytest.raises(ValueError, match=r"`validation_split` needs arrays.*`validation_data`"):
        model.fit(tf_data(TEXTS, LABELS), validation_split=0.3, verbose=0)


STEPS = {
    # Keras knows the number of batches of columns.
    "columns": (lambda *parts: parts, [2, 1, 2]),
    "endless": (lambda *parts: tf_data(*parts).repeat(), [2, 2, 2]),
    "iterable without length": (lambda *parts: Unsized(batches(*parts)), [2, 2, 2]),
    "generator": (lambda *parts: iter(batches(*parts)), [2]),
}


@pytest.mark.parametrize("make, expected", STEPS.values(), ids=list(STEPS))
def test_steps_per_epoch_continue(model, make, expected):
    steps, data = Steps(), make(TEXTS, LABELS)
    call(model.fit, data, steps_per_epoch=2, epochs=len(expected), callbacks=[steps])
    assert steps.trained == expected
    if hasattr(data, "__next__"):
        # The rest remains for a later call.
        assert len(list(data)) == 1


def test_a_dataset_of_the_user_is_told_of_epochs(model):
    dataset = PyDataset(batches(TEXTS, LABELS))
    model.fit(dataset, epochs=2, verbose=0)
    # Keras may end an epoch before the first one.
    assert dataset.events[-4:] == ["begin", "end"] * 2
    assert model.batches(dataset).num_batches == 3


def test_batches_of_arrays_reach_keras_untouched(model):
    class Arrays(EpochDataset):
        num_batches = 2

        def batch(self, epoch, index):
            return random_inputs(np.random.default_rng(index)), np.array([index, 3])

    data = Arrays(seed=1)
    assert model.batches(data) is data
    assert model.fit(data, validation_data=data, verbose=0).params["steps"] == 2
    assert model.predict(data, verbose=0).shape == (4, 7)


def test_functions_as_preprocessors():
    inputs = random_inputs(np.random.default_rng(3), batch_size=5, length=7)
    model = tiny_task("classifier", with_preprocessor=False)
    outputs = model.predict(inputs, verbose=0)
    loss = model.evaluate(inputs, LABELS, verbose=0)[0]
    model.preprocessor = lambda rows: {
        name: array[np.asarray(rows)] for name, array in inputs.items()
    }
    data = (np.arange(5), LABELS)
    assert call(model.predict, data) == close(outputs)
    assert call(model.evaluate, data)[0] == close(loss)


@pytest.mark.parametrize("kind", [Column, Series, PolarsSeries, Chunks])
def test_columns_of_other_tasks_and_of_pairs(kind):
    """Texts to encode, pairs that are preprocessed, and sentences with labels of words."""
    embedder = randomize_weights(tiny_task("embedder"))
    assert embedder.encode_text(kind(TEXTS), verbose=0) == close(embedder.encode_text(TEXTS))
    preprocessor = embedder.preprocessor
    found, expected = preprocessor((kind(TEXTS), kind(SECOND))), preprocessor((TEXTS, SECOND))
    np.testing.assert_array_equal(found["token_ids"], expected["token_ids"])
    tagger = randomize_weights(tiny_task("token_classifier"))
    sentences, labels = [["the", "fox"], ["cats"]], [[1, 2], [4]]
    loss = tagger.evaluate(sentences, labels, verbose=0)
    assert tagger.evaluate(kind(sentences), kind(labels), verbose=0) == close(loss)


# === Order and random numbers ===

WORDS = [token for token in VOCABULARY[5:] if "#" not in token]


def order_of(data, epoch=0):
    """The rows in each batch of an epoch. Row `i` has word `i`, label `i % 7` and weight `i`."""
    found = []
    for index in range(data.num_batches):
        x, y, weights = data.batch(epoch, index)
        rows = [WORDS.index(VOCABULARY[token]) for token in x["token_ids"][:, 1]]
        assert (y.tolist(), weights.tolist()) == ([row % 7 for row in rows], rows)
        found.append(rows)
    return found


def numbered(number):
    return WORDS[:number], np.arange(number) % 7, np.arange(number)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    number=st.integers(1, len(WORDS)),
    size=st.integers(1, 7),
    epoch=st.integers(0, 5),
    shuffle=st.booleans(),
    is_dataset=st.booleans(),
)
def test_batches_depend_on_seed_epoch_and_index(model, number, size, epoch, shuffle, is_dataset):
    def make():
        keras.utils.set_random_seed(7)
        if is_dataset:
            elements = batches(*numbered(number), size=size)
            return model.batches(PyDataset(elements), shuffle=shuffle)
        return model.batches(*numbered(number), batch_size=size, shuffle=shuffle)

    data = make()
    order = order_of(data, epoch)
    assert sorted(map(len, order), reverse=True)[:-1] == [size] * (data.num_batches - 1)
    rows = [row for batch in order for row in batch]
    assert sorted(rows) == list(range(number))
    assert shuffle or rows == sorted(rows)
    # After a fresh start, and read from the end.
    again = make()
    for index in reversed(range(data.num_batches)):
        tokens = again.batch(epoch, index)[0]["token_ids"][:, 1]
        assert [WORDS.index(VOCABULARY[token]) for token in tokens] == order[index]


@pytest.mark.parametrize("is_dataset", [False, True])
def test_each_epoch_and_seed_has_its_own_order(model, is_dataset):
    orders = []
    for seed in (3, 4):
        keras.utils.set_random_seed(seed)
        parts = (PyDataset(batches(*numbered(11), size=1)),) if is_dataset else numbered(11)
        data = model.batches(*parts, batch_size=None if is_dataset else 4, shuffle=True)
        orders += [str(order_of(data, epoch)) for epoch in range(3)]
    assert len({*orders, str([[i] for i in range(11)])}) == 7


def test_a_pass_of_several_epochs_reads_each_row_once(model):
    data = model.batches(*numbered(6), batch_size=2, shuffle=True)
    found = []
    for index in range(3):
        found += data[index][2].tolist()
        data.on_epoch_end()
    assert sorted(found) == list(range(6))


def test_predict_draws_no_random_numbers(model):
    state = np.random.get_state()[1].tolist()
    model.predict(TEXTS, verbose=0)
    model.evaluate(TEXTS, LABELS, verbose=0)
    model.batches(TEXTS, LABELS, training=False)
    assert np.random.get_state()[1].tolist() == state


def test_masks_are_new_in_each_epoch_and_fixed_in_validation():
    def masks(epoch, index, seed=21):
        """The masks of a batch, after a fresh start."""
        keras.utils.set_random_seed(seed)
        data = tiny_task("masked_lm").batches(TEXTS, batch_size=2)
        return data.batch(epoch, index)[0]["mask_positions"].tolist()

    first, second, other = (masks(*place) for place in ((0, 0), (1, 0), (1, 1)))
    assert first == masks(0, 0)
    assert first != masks(0, 0, seed=22)
    assert first != second != other
    model = tiny_task("masked_lm")
    # The weights do not change, so only masks could change the loss.
    model.compile(keras.optimizers.SGD(0.0))
    history = model.fit(TEXTS, validation_data=(TEXTS,), epochs=3, verbose=0).history
    assert len(set(history["loss"])) == 3
    assert len(set(history["val_loss"])) == 1
    assert model.evaluate(TEXTS, verbose=0)[0] == close(history["val_loss"][0])


def test_each_validation_begins_with_the_first_batch():
    model = tiny_task("masked_lm")
    model.compile(keras.optimizers.SGD(0.0))
    elements = batches(TEXTS)
    first = model.evaluate(Unsized(elements), steps=1, verbose=0)[0]
    data = {"validation_data": Unsized(elements), "validation_steps": 1}
    history = model.fit(TEXTS, **data, epochs=3, verbose=0).history
    assert history["val_loss"] == [close(first)] * 3


# === Length buckets ===

# In batches of 2: lengths 5, 4, 7, 13 with [CLS] and [SEP], where the longest length is 13.
MIXED = ["the red fox", "the", "a", "the fox", "the red fox sleep .", "a", "the fox and " * 4]
SIZES, BUCKETS = [5, 5, 8, 13], (5, 8)


@pytest.mark.parametrize("task", ["classifier", "masked_lm", "embedder"])
def test_batches_have_the_length_of_their_bucket(task):
    model = tiny_task(task)
    full = model.batches(MIXED, batch_size=2, labels=False).batch(0, 2)[0]["padding_mask"]
    assert full.shape == (2, 13)
    model.preprocessor = tiny_preprocessor(task, length_buckets=BUCKETS)
    data = model.batches(MIXED, batch_size=2, labels=False)
    for index, size in enumerate(SIZES):
        inputs = data.batch(0, index)[0]
        for name in ("token_ids", "segment_ids", "padding_mask"):
            assert inputs[name].shape[1] == size
    np.testing.assert_array_equal(data.batch(0, 2)[0]["padding_mask"], full[:, :8])


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize(
    "backend", ["torch", pytest.param("tensorflow", marks=pytest.mark.any_backend("tensorflow"))]
)
def test_buckets_do_not_change_results(backend):
    """Keras on TensorFlow takes the lengths of the first two batches for those of all."""
    assert keras.backend.backend() == backend
    model = randomize_weights(tiny_task("classifier"))
    labels = np.arange(7)
    elements = batches(MIXED, labels)
    kinds = ((MIXED, labels), PyDataset(elements), Unsized(elements))
    outputs, loss = call(model.predict, kinds[0]), call(model.evaluate, kinds[0])[0]
    model.preprocessor = tiny_preprocessor("classifier", length_buckets=BUCKETS)
    for make in (*(lambda data=data: data for data in kinds), lambda: iter(elements)):
        np.testing.assert_allclose(call(model.predict, make()), outputs, 1e-4, 1e-5)
        assert call(model.evaluate, make())[0] == pytest.approx(loss, rel=1e-4)
    # One-hot labels of as many classes as a batch has tokens.
    model.compile(loss=keras.losses.CategoricalCrossentropy(from_logits=True), metrics=[])
    found = call(model.evaluate, (MIXED, np.eye(7, dtype="float32")))
    assert found == pytest.approx(loss, rel=1e-4)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    for data in kinds:
        steps = Steps()
        call(model.fit, data, validation_data=kinds[1], epochs=2, callbacks=[steps])
        assert steps.trained == steps.validated == [4] * 2


def test_one_text_has_one_label():
    model = tiny_task("classifier")
    model = type(model)(
        model.backbone, class_names=list("abcdefg"), preprocessor=model.preprocessor
    )
    expected = model.evaluate([TEXTS[1]], [3], sample_weight=[0.25], verbose=0)[0]
    for label in (3, np.int64(3), keras.ops.convert_to_tensor(3), "d"):
        found = model.evaluate(TEXTS[1], label, sample_weight=0.25, verbose=0)
        assert found[0] == pytest.approx(expected, rel=1e-6)


# === Refusals ===

UNEQUAL = ((TEXTS, SECOND[:4]), LABELS[:3], WEIGHTS[:2])
REFUSED = {
    "missing second text": (
        lambda m: m.predict((["a", "b"], np.array(["a", np.nan], object))),
        r"`x\[1\]` must hold strings. Received: nan in row 1",
    ),
    "masked text": (lambda m: m.predict(np.ma.array(["a", "b"], mask=[0, 1])), "None in row 1"),
    "missing text of a dataset": (lambda m: m.predict(Unsized([(["a", None],)])), "in row 1"),
    "token ids": (lambda m: m.predict(np.arange(3)), "0 in row 0.*`preprocessor=None`"),
    "dictionary": (lambda m: m.predict({"token_ids": [[1]]}), "dict.*`preprocessor=None`"),
    "half of a pair of surrogates": (lambda m: m.classify(["a", "b\ud800"]), "Unicode.* in row 1"),
    "one label of two texts": (lambda m: m.fit(["a", "b"], 1), "Received: 2 in `x`, 1 in `y`"),
    "longer than the backbone": (
        lambda m: tiny_task("classifier", max_sequence_length=12),
        r"sequences of 13 tokens and backbone.max_sequence_length=12.*`sequence_length=12`",
    ),
    "no data": (lambda m: m.predict([]), "at least one. Received: 0 in `x`"),
    "no mask to fill": (
        lambda m: tiny_task("masked_lm").fill_mask([]),
        "at least one. Received: 0 in `texts`",
    ),
    "empty dataset": (lambda m: m.predict(Unsized([])), "at least one batch"),
    "parts of unequal length": (
        lambda m: m.train_on_batch(*UNEQUAL),
        r"5 in `x\[0\]`, 4 in `x\[1\]`, 3 in `y`, 2 in `sample_weight`",
    ),
    "more texts than segments": (lambda m: m.predict((TEXTS, TEXTS, TEXTS)), "num_segments.* to 2"),
    "no labels": (lambda m: m.fit(TEXTS), "needs labels"),
    "no labels in a dataset": (lambda m: m.fit(Unsized([(TEXTS,)])), "needs labels"),
    "no labels to resume": (lambda m: ExactResume("new", 1).fit(m, TEXTS), "needs labels"),
    "second texts as labels": (lambda m: m.fit(TEXTS, SECOND), r"`y` must be numbers.*\(first, s"),
    "weights as batch size": (lambda m: m.fit(TEXTS, LABELS, WEIGHTS), "`batch_size` must be a p"),
    "labels beside a dataset": (lambda m: m.fit(Unsized([]), LABELS), "`y` must be `None`"),
    "labels of a masked LM": (
        lambda m: tiny_task("masked_lm").fit(TEXTS, LABELS),
        "`y` and `sample_weight` must be `None`",
    ),
}


@pytest.mark.parametrize("refused, message", REFUSED.values(), ids=list(REFUSED))
def test_refused(model, refused, message):
    with pytest.raises(ValueError, match=message):
        refused(model)
