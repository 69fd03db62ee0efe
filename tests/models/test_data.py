"""What `fit`, `evaluate` and `predict` take, and in which order and batches they read it."""

import collections
import warnings

import grain
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_diet.models.hub.task_data import TaskData
from keras_diet.training.epoch_dataset import EpochDataset
from tests.helpers import to_numpy
from tests.models.tasks import tiny_preprocessor, tiny_task
from tests.models.tiny import TEXTS, random_inputs, randomize_weights

pytestmark = [
    pytest.mark.any_backend,
    # Keras says it when a generator ends.
    pytest.mark.filterwarnings("ignore:Your input ran out of data"),
]
# 5 examples in batches of 2: the last batch is smaller.
SECOND = TEXTS[2:] + TEXTS[:2]
LABELS = np.array([6, 2, 0, 3, 1])
WEIGHTS = np.array([0.5, 2.0, 1.0, 0.25, 4.0], "float32")


def batches(*parts):
    """Batches of 2 of the texts, labels and weights, as tuples."""

    def rows(part, start):
        if isinstance(part, tuple):
            return tuple(rows(each, start) for each in part)
        return part[start : start + 2]

    return [tuple(rows(part, start) for part in parts) for start in (0, 2, 4)]


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
        self.elements, self.passes = elements, 0

    def __iter__(self):
        self.passes += 1
        return iter(self.elements)


class Sequence:
    """Batches that can only be asked for one by one."""

    def __init__(self, elements):
        self.elements = elements

    def __getitem__(self, index):
        return self.elements[index]


def tf_data(*parts):
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices(parts).batch(2)


def examples(parts):
    transposed = [list(zip(*p, strict=True)) if isinstance(p, tuple) else p for p in parts]
    return list(zip(*transposed, strict=True))


def data_loader(*parts):
    return pytest.importorskip("torch").utils.data.DataLoader(examples(parts), batch_size=2)


def unsized_data_loader(*parts):
    data = pytest.importorskip("torch").utils.data

    class Examples(data.IterableDataset):
        def __iter__(self):
            return iter(examples(parts))

    return data.DataLoader(Examples(), batch_size=2)


def grain_dataset(*parts):
    return grain.MapDataset.source(examples(parts)).batch(2)


DATASETS = {
    "PyDataset": lambda *parts: PyDataset(batches(*parts)),
    "PyDataset with workers": lambda *parts: PyDataset(batches(*parts), workers=3),
    "list of batches": lambda *parts: collections.UserList(batches(*parts)),
    "sequence without length": lambda *parts: Sequence(batches(*parts)),
    "iterable without length": lambda *parts: Unsized(batches(*parts)),
    "generator": lambda *parts: (element for element in batches(*parts)),
    "Grain": grain_dataset,
    "Grain's iterator": lambda *parts: grain_dataset(*parts).to_iter_dataset(),
    "DataLoader": data_loader,
    "DataLoader without length": unsized_data_loader,
    "tf.data": tf_data,
    "tf.data without length": lambda *parts: tf_data(*parts).filter(lambda *_: True),
}
every_dataset = pytest.mark.parametrize("make", DATASETS.values(), ids=list(DATASETS))


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

    def to_list(self):
        return list(self.values)


COLUMNS = {
    "list": list,
    "strings": np.array,
    "objects": lambda values: np.array(values, dtype=object),
    "bytes": lambda values: [value.encode() for value in values],
    "array of bytes": lambda values: np.array(values).astype("S"),
    "nothing masked": lambda values: np.ma.array(values, mask=False),
    "Hugging Face": Column,
    "pandas": Series,
}


@pytest.fixture(scope="module")
def expected():
    """A model, its outputs for all texts and for all pairs, and the weighted loss."""
    model = randomize_weights(tiny_task("classifier"))
    outputs = to_numpy(model(model.preprocessor(TEXTS)))
    pairs = to_numpy(model(model.preprocessor((TEXTS, SECOND))))
    losses = keras.losses.sparse_categorical_crossentropy(LABELS, outputs, from_logits=True)
    return model, outputs, pairs, to_numpy(losses) @ WEIGHTS / 5


# === Forms of data ===


@every_dataset
def test_datasets(expected, make):
    model, outputs, pairs, loss = expected
    np.testing.assert_allclose(model.predict(make(TEXTS), verbose=0), outputs, 1e-5, 1e-5)
    labelled = make(TEXTS, np.full(5, -1))
    # Labels are not read.
    np.testing.assert_allclose(model.predict(labelled, verbose=0), outputs, 1e-5, 1e-5)
    found = model.predict(make((TEXTS, SECOND), LABELS), verbose=0)
    np.testing.assert_allclose(found, pairs, 1e-5, 1e-5)
    evaluated = model.evaluate(make(TEXTS, LABELS, WEIGHTS), verbose=0, return_dict=True)
    assert evaluated["loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns(expected, kind):
    model, outputs, pairs, loss = expected
    texts = COLUMNS[kind](TEXTS)
    np.testing.assert_allclose(model.predict(texts, batch_size=2, verbose=0), outputs, 1e-5, 1e-5)
    found = model.predict((texts, COLUMNS[kind](SECOND)), batch_size=3, verbose=0)
    np.testing.assert_allclose(found, pairs, 1e-5, 1e-5)
    for labels, weights in ((LABELS, WEIGHTS), (Column(LABELS.tolist()), WEIGHTS[:, None])):
        evaluated = model.evaluate(
            texts, labels, batch_size=4, sample_weight=weights, verbose=0, return_dict=True
        )
        assert evaluated["loss"] == pytest.approx(loss, rel=1e-5)
        found = model.test_on_batch(texts, labels, weights, return_dict=True)
        assert found["loss"] == pytest.approx(loss, rel=1e-5)


def test_one_text_is_a_batch_of_one(expected):
    model, outputs, pairs, _ = expected
    for one in (TEXTS[1], TEXTS[1].encode(), np.str_(TEXTS[1]), np.array(TEXTS[1]), [TEXTS[1]]):
        np.testing.assert_allclose(model.predict(one, verbose=0), outputs[1:2], 1e-5, 1e-5)
        np.testing.assert_allclose(model.predict_on_batch(one), outputs[1:2], 1e-5, 1e-5)
    pair = (TEXTS[3], SECOND[3])
    np.testing.assert_allclose(model.predict(pair, verbose=0), pairs[3:4], 1e-5, 1e-5)


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


@every_dataset
def test_every_epoch_reads_all_batches(make):
    steps = Steps()
    data, validation = make(TEXTS, LABELS), make(TEXTS, LABELS)
    model = tiny_task("classifier")
    epochs = 1 if hasattr(data, "__next__") else 3
    model.fit(data, validation_data=validation, epochs=epochs, callbacks=[steps], verbose=0)
    assert steps.trained == steps.validated == [3] * epochs


@pytest.mark.parametrize("kind", ["columns", "generator", "endless", "iterable without length"])
def test_steps_per_epoch_continue(kind):
    read = []

    def generate():
        for batch in batches(TEXTS, LABELS):
            read.append(batch[1][0])
            yield batch

    data = {
        "columns": lambda: (TEXTS, LABELS),
        "generator": lambda: (generate(),),
        "endless": lambda: (tf_data(TEXTS, LABELS).repeat(),),
        "iterable without length": lambda: (Unsized(batches(TEXTS, LABELS)),),
    }[kind]()
    steps = Steps()
    arguments = {"batch_size": 2} if kind == "columns" else {}
    epochs = 1 if kind == "generator" else 3
    model = tiny_task("classifier")
    model.fit(*data, steps_per_epoch=2, epochs=epochs, callbacks=[steps], verbose=0, **arguments)
    # Keras knows the number of batches of columns.
    assert steps.trained == ([2, 1, 2] if kind == "columns" else [2] * epochs)
    # The rest remains for a later call.
    assert kind != "generator" or read == [6, 0]


def test_a_dataset_of_the_user_is_told_of_epochs():
    dataset = PyDataset(batches(TEXTS, LABELS), workers=3, max_queue_size=17)
    model = tiny_task("classifier")
    model.fit(dataset, epochs=2, verbose=0)
    # Keras may end an epoch before the first one.
    assert dataset.events[-4:] == ["begin", "end"] * 2
    data = model.as_dataset(dataset)
    assert (data.workers, data.max_queue_size, data.num_batches) == (3, 17, 3)


# === Order and random numbers ===


def rows_of(data, epoch, texts):
    """The rows of the texts in each batch of an epoch."""
    return [
        [texts.index(row) for row in data.batch(epoch, index)[0]]
        for index in range(data.num_batches)
    ]


class Recorder:
    """Stands for a task: its batches are the texts themselves."""

    def __init__(self):
        self.preprocessor = None
        self.token_inputs = {}

    def columns(self, x, y=None, sample_weight=None):
        return x, y, sample_weight

    def preprocess_samples(self, x, y, sample_weight):
        return keras.utils.pack_x_y_sample_weight(x, y, sample_weight)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(1, 23), st.integers(1, 7), st.integers(0, 5), st.booleans())
def test_batches_depend_on_seed_epoch_and_index(number, size, epoch, shuffle):
    texts = [f"text {i}" for i in range(number)]
    keras.utils.set_random_seed(7)
    data = TaskData(Recorder(), (texts, None, None), True, size, shuffle)
    found = rows_of(data, epoch, texts)
    assert [len(rows) for rows in found[:-1]] == [size] * (data.num_batches - 1)
    flat = [row for rows in found for row in rows]
    assert sorted(flat) == list(range(number))
    assert shuffle or flat == sorted(flat)
    # After a fresh start, and read from the end.
    keras.utils.set_random_seed(7)
    again = TaskData(Recorder(), (texts, None, None), True, size, shuffle)
    for index in reversed(range(data.num_batches)):
        assert [texts.index(row) for row in again.batch(epoch, index)[0]] == found[index]


def test_each_epoch_and_seed_has_its_own_order():
    texts = [f"text {i}" for i in range(11)]
    orders = []
    for seed in (3, 4):
        keras.utils.set_random_seed(seed)
        data = TaskData(Recorder(), (texts, None, None), True, 4, True)
        orders += [str(rows_of(data, epoch, texts)) for epoch in range(3)]
    assert len(set(orders)) == 6
    elements = [([text],) for text in texts]
    data = TaskData(Recorder(), PyDataset(elements), False, shuffle=True)
    first, second = (rows_of(data, epoch, texts) for epoch in (0, 1))
    assert sorted(first) == sorted(second) == [[i] for i in range(11)]
    assert first != second
    assert first != sorted(first)


def test_a_pass_of_several_epochs_reads_each_row_once():
    texts = [f"text {i}" for i in range(6)]
    data = TaskData(Recorder(), (texts, None, None), True, 2, True)
    found = []
    for index in range(3):
        found += data[index][0]
        data.on_epoch_end()
    assert sorted(found) == texts


def test_predict_draws_no_random_numbers():
    model = tiny_task("classifier")
    state = np.random.get_state()[1].tolist()
    model.predict(TEXTS, verbose=0)
    model.evaluate(TEXTS, LABELS, verbose=0)
    tiny = model.as_dataset(TEXTS, LABELS)
    assert np.random.get_state()[1].tolist() == state
    assert tiny.seed == 0


def test_masks_are_new_in_each_epoch_and_fixed_in_validation():
    keras.utils.set_random_seed(21)
    model = tiny_task("masked_lm")
    data = model.as_dataset(TEXTS, batch_size=2)
    first, again, second, other = (
        data.batch(epoch, index)[0]["mask_positions"].tolist()
        for epoch, index in ((0, 0), (0, 0), (1, 0), (1, 1))
    )
    assert first == again
    assert first != second != other
    same = model.as_dataset([TEXTS[2]] * 4, batch_size=2)
    assert same.batch(0, 0)[1].tolist() != same.batch(0, 1)[1].tolist()
    fixed = model.as_dataset(TEXTS, batch_size=2, training=False)
    assert fixed.batch(0, 0)[1].tolist() == fixed.batch(5, 0)[1].tolist()
    # The weights do not change, so only masks could change the loss.
    model.compile(keras.optimizers.SGD(0.0))
    history = model.fit(TEXTS, validation_data=(TEXTS,), epochs=3, verbose=0).history
    assert len(set(history["loss"])) == 3
    assert len(set(history["val_loss"])) == 1
    assert model.evaluate(TEXTS, verbose=0)[0] == pytest.approx(history["val_loss"][0], rel=1e-5)
    keras.utils.set_random_seed(21)
    model = tiny_task("masked_lm")
    repeated = model.as_dataset(TEXTS, batch_size=2)
    assert repeated.batch(1, 1)[0]["mask_positions"].tolist() == other


def test_batches_of_arrays_reach_keras_untouched():
    class Arrays(EpochDataset):
        num_batches = 2

        def batch(self, epoch, index):
            return random_inputs(np.random.default_rng(index)), np.array([index, 3])

    model = tiny_task("classifier")
    data = Arrays(seed=1)
    assert model.as_dataset(data) is data
    assert model.fit(data, validation_data=data, verbose=0).params["steps"] == 2
    assert model.predict(data, verbose=0).shape == (4, 7)
    plain = tiny_task("classifier", with_preprocessor=False)
    assert plain.as_dataset("anything") == "anything"


# === Validation and weights ===


@pytest.fixture
def frozen():
    """A model in whose steps nothing is learned, so that validation is like evaluation."""
    model = randomize_weights(tiny_task("classifier"))
    model.output_dropout.rate = 0.0
    model.compile(keras.optimizers.SGD(0.0))
    return model


def test_validation_split_takes_the_last_rows(frozen):
    history = frozen.fit(
        (TEXTS, SECOND),
        LABELS,
        sample_weight=WEIGHTS,
        batch_size=2,
        validation_split=0.4,
        verbose=0,
    )
    assert history.params["steps"] == 2
    for rows, name in ((slice(3), "loss"), (slice(3, 5), "val_loss")):
        x = (TEXTS[rows], SECOND[rows])
        loss = frozen.evaluate(x, LABELS[rows], sample_weight=WEIGHTS[rows], verbose=0)[0]
        assert history.history[name][0] == pytest.approx(loss, rel=1e-5)


@every_dataset
def test_validation_data(frozen, make):
    loss = frozen.evaluate(TEXTS, LABELS, sample_weight=WEIGHTS, verbose=0)[0]
    steps = Steps()
    for validation in ((TEXTS, LABELS, WEIGHTS), make(TEXTS, LABELS, WEIGHTS)):
        history = frozen.fit(
            TEXTS, LABELS, validation_data=validation, validation_batch_size=3, verbose=0,
            callbacks=[steps],
        )  # fmt: skip
        assert history.history["val_loss"][0] == pytest.approx(loss, rel=1e-5)
    assert steps.validated == [2, 3]


@every_dataset
def test_class_weight_of_data_of_any_kind(frozen, make):
    losses = [frozen.evaluate([t], [y], verbose=0)[0] for t, y in zip(TEXTS, LABELS, strict=True)]
    class_weight = {6: 0.5, 2: 2.0, 3: 0.25, 1: 4.0}
    for data in ((TEXTS, LABELS), (make(TEXTS, LABELS),)):
        history = frozen.fit(*data, class_weight=class_weight, verbose=0).history
        assert history["loss"][0] == pytest.approx(losses @ WEIGHTS / 5, rel=1e-5)
    found = frozen.train_on_batch(TEXTS, LABELS, class_weight=class_weight)[0]
    assert found == pytest.approx(losses @ WEIGHTS / 5, rel=1e-5)


# === Length buckets ===

# In batches of 2: lengths 4, 4, 7, 13 with [CLS] and [SEP], where the longest length is 13.
MIXED = ["the fox", "the", "a", "the fox", "the red fox sleep .", "a", "the fox and " * 4]
SIZES, BUCKETS = [5, 5, 8, 13], (5, 8)


@pytest.mark.parametrize("task", ["classifier", "masked_lm", "embedder"])
def test_batches_have_the_length_of_their_bucket(task):
    model = tiny_task(task)
    model.preprocessor = tiny_preprocessor(task, length_buckets=BUCKETS)
    data, full = (model.as_dataset(MIXED, batch_size=2) for _ in range(2))
    for index, size in enumerate(SIZES):
        inputs = data.batch(0, index)[0]
        for name in ("token_ids", "segment_ids", "padding_mask"):
            assert inputs[name].shape[1] == size
    model.preprocessor = tiny_preprocessor(task)
    full = model.as_dataset(MIXED, batch_size=2).batch(0, 2)[0]["padding_mask"]
    assert full.shape == (2, 13)
    np.testing.assert_array_equal(data.batch(0, 2)[0]["padding_mask"], full)
    # Three words, [CLS] and [SEP] fill the first bucket.
    preprocessor = tiny_preprocessor("classifier", length_buckets=BUCKETS)
    assert preprocessor(["the red fox"])["token_ids"].shape == (1, 5)
    assert preprocessor("the red fox .")["token_ids"].shape == (8,)


def test_buckets_do_not_change_results():
    check_buckets()


@pytest.mark.any_backend("tensorflow")
@pytest.mark.usefixtures("compiled_steps")
def test_buckets_do_not_change_results_on_tensorflow():
    """Keras takes the lengths of the first two batches for those of all."""
    check_buckets()


def check_buckets():
    model = randomize_weights(tiny_task("classifier"))
    labels = np.arange(7)
    elements = [(MIXED[i : i + 2], labels[i : i + 2]) for i in (0, 2, 4, 6)]
    makers = (PyDataset, Unsized, iter)
    expected = model.predict(MIXED, batch_size=2, verbose=0)
    loss = model.evaluate(MIXED, labels, batch_size=2, verbose=0)[0]
    model.preprocessor = tiny_preprocessor("classifier", length_buckets=BUCKETS)
    for data in (MIXED, *(make(elements) for make in makers)):
        arguments = {"batch_size": 2} if data is MIXED else {}
        found = model.predict(data, verbose=0, **arguments)
        np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
    for make in makers:
        assert model.evaluate(make(elements), verbose=0)[0] == pytest.approx(loss, rel=1e-4)
    # One-hot labels of as many classes as a batch has tokens.
    model.compile(loss=keras.losses.CategoricalCrossentropy(from_logits=True), metrics=[])
    one_hot = np.eye(7, dtype="float32")
    found = model.evaluate(MIXED, one_hot, batch_size=2, verbose=0)
    assert found == pytest.approx(loss, rel=1e-4)
    steps = Steps()
    arguments = {"epochs": 2, "callbacks": [steps], "verbose": 0}
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(MIXED, labels, batch_size=2, validation_data=PyDataset(elements), **arguments)
    model.fit(Unsized(elements), **arguments)
    assert steps.trained == [4] * 4
    assert steps.validated == [4] * 2


# === Other preprocessors and multiple outputs ===


def test_functions_as_preprocessors():
    inputs = random_inputs(np.random.default_rng(3), batch_size=5, length=7)
    model = tiny_task("classifier", with_preprocessor=False)
    expected = model.predict(inputs, verbose=0)
    loss = model.evaluate(inputs, LABELS, verbose=0)[0]
    model.preprocessor = lambda rows: {
        name: array[np.asarray(rows)] for name, array in inputs.items()
    }
    np.testing.assert_allclose(model.predict(np.arange(5), verbose=0), expected, 1e-5, 1e-6)
    np.testing.assert_allclose(model.predict_on_batch(np.arange(5)), expected, 1e-5, 1e-6)
    assert model.evaluate(np.arange(5), LABELS, verbose=0)[0] == pytest.approx(loss, rel=1e-5)
    assert model.test_on_batch(np.arange(5), LABELS)[0] == pytest.approx(loss, rel=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert model.fit(np.arange(5), LABELS, batch_size=2, verbose=0).params["steps"] == 3
    assert np.isfinite(model.train_on_batch(np.arange(5), LABELS)[0])


# === Refusals ===


def element(position, *bad):
    elements = batches(TEXTS, LABELS)
    return [*elements[:position], bad, *elements[position + 1 :]]


REFUSED = {
    "missing text": (lambda m: m.predict([*TEXTS[:2], None]), r"Received: None in row 2"),
    "NaN as text": (lambda m: m.predict(np.array(["a", np.nan], object)), "nan in row 1"),
    "masked text": (lambda m: m.predict(np.ma.array(["a", "b"], mask=[0, 1])), "None in row 1"),
    "missing second text": (lambda m: m.predict((["a"], [None])), r"`x\[1\]`.*None in row 0"),
    "token ids": (lambda m: m.predict(np.arange(3)), "0 in row 0.*`preprocessor=None`"),
    "dictionary": (lambda m: m.predict({"token_ids": [[1]]}), "dict.*`preprocessor=None`"),
    "pairs in a list": (lambda m: m.predict([["a", "b"]]), r"pass a tuple \(first, second\)"),
    "no data": (lambda m: m.predict([]), "at least one. Received: 0 in `x`"),
    "fewer second texts": (lambda m: m.predict((["a"] * 3, ["b"] * 2)), r"3 in `x\[0\]`, 2 in `x"),
    "more texts than segments": (lambda m: m.predict((TEXTS, TEXTS, TEXTS)), "num_segments.* to 2"),
    "large integer": (lambda m: m.evaluate(TEXTS, [2**32 + 5, 1, 2, 3, 4]), "to 4294967301"),
    "fewer labels": (lambda m: m.fit(TEXTS, LABELS[:4]), "5 in `x`, 4 in `y`"),
    "fewer weights": (
        lambda m: m.fit(TEXTS, LABELS, sample_weight=WEIGHTS[:3]),
        "5 in `y`, 3 in `sample_weight`",
    ),
    "no labels": (lambda m: m.fit(TEXTS), "needs labels"),
    "no labels of validation": (
        lambda m: m.fit(TEXTS, LABELS, validation_data=(TEXTS,)),
        "needs labels",
    ),
    "second texts as labels": (lambda m: m.fit(TEXTS, SECOND), r"`y` must be numbers.*\(first, s"),
    "third argument": (lambda m: m.fit(TEXTS, LABELS, WEIGHTS), "`batch_size` must be a positive"),
    "batch size 0": (lambda m: m.predict(TEXTS, batch_size=0), "`batch_size` must be a positive"),
    "labels beside a dataset": (lambda m: m.fit(Unsized([]), LABELS), "`y` must be `None`"),
    "size beside a dataset": (lambda m: m.predict(Unsized([]), 3), "`batch_size` must be `None`"),
    "split of a dataset": (
        lambda m: m.fit(Unsized(batches(TEXTS, LABELS)), validation_split=0.2),
        "`validation_split` is only supported for",
    ),
    "split of nothing": (lambda m: m.fit(TEXTS, LABELS, validation_split=0.99), "least one"),
    "split of all": (lambda m: m.fit(TEXTS, LABELS, validation_split=1.5), "least one"),
    "empty dataset": (lambda m: m.predict(Unsized([])), "at least one batch"),
    "bad text of a dataset": (lambda m: m.predict(Unsized(element(1, ["a", None]))), "in row 1"),
    "bad label of a dataset": (
        lambda m: m.evaluate(PyDataset(element(2, TEXTS[:1], [7]))),
        r"\[0, 7\).*from 7 to 7",
    ),
    "weights of both kinds": (
        lambda m: m.fit(TEXTS, LABELS, sample_weight=WEIGHTS, class_weight={0: 2.0}),
        "without weights",
    ),
    "vocabulary of another model": (
        lambda m: tiny_task("classifier", vocabulary_size=29),
        "vocabulary_size=29 and a tokenizer of 31 tokens",
    ),
    "longer sequences": (
        lambda m: tiny_task("classifier", max_sequence_length=11),
        "sequence_length=13, backbone.max_sequence_length=11",
    ),
    "preprocessor of another task": (
        lambda m: type(m)(m.backbone, 7, tiny_preprocessor("embedder")),
        "must be a `DietBertTextClassifierPreprocessor`",
    ),
    "labels of a masked LM": (
        lambda m: tiny_task("masked_lm").fit(TEXTS, LABELS),
        "`y` and `sample_weight` must be `None`",
    ),
}


@pytest.mark.parametrize("call, message", REFUSED.values(), ids=list(REFUSED))
def test_refused(expected, call, message):
    with pytest.raises(ValueError, match=message):
        call(expected[0])
