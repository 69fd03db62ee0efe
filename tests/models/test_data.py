"""All kinds of data that `fit`, `evaluate` and `predict` of a task take."""

import importlib.util
import time
import warnings

import grain
import keras
import numpy as np
import pytest

from keras_diet.models.hub.array_batches import ArrayBatches
from keras_diet.models.hub.batches import preprocessed
from tests.helpers import once, to_numpy
from tests.models.tasks import tiny_task
from tests.models.tiny import TEXTS, random_inputs

# 5 examples in batches of 2: the last batch is smaller.
BATCH_SIZE = 2
LABELS = np.array([6, 2, 0, 3, 1])
WEIGHTS = np.array([0.5, 2.0, 1.0, 0.25, 4.0], "float32")
STEPS = range(0, 5, BATCH_SIZE)

requires_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"
)


def batches(*parts):
    """Batches of some of the texts, labels and weights, as tuples."""
    return [tuple(part[i : i + BATCH_SIZE] for part in parts) for i in STEPS]


class PyDataset(keras.utils.PyDataset):
    def __init__(self, elements):
        super().__init__()
        self.elements = elements

    @property
    def num_batches(self):
        return len(self.elements)

    def __getitem__(self, index):
        return self.elements[index]


class Batches:
    """A sized iterable, as PyTorch's `DataLoader`."""

    def __init__(self, elements):
        self.elements = elements

    def __len__(self):
        return len(self.elements)

    def __iter__(self):
        return iter(self.elements)


class Sequence:
    """Batches that can only be asked for one by one."""

    def __init__(self, elements):
        self.elements = elements

    def __getitem__(self, index):
        return self.elements[index]


def tf_data(*parts):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(parts).batch(BATCH_SIZE)


def data_loader(*parts):
    torch = pytest.importorskip("torch")
    examples = list(zip(*parts, strict=True))
    return torch.utils.data.DataLoader(examples, batch_size=BATCH_SIZE)


def grain_dataset(*parts):
    return grain.MapDataset.source(list(zip(*parts, strict=True))).batch(BATCH_SIZE)


DATASETS = {
    "PyDataset": lambda *parts: PyDataset(batches(*parts)),
    "list of batches": lambda *parts: Batches(batches(*parts)),
    "sequence without length": lambda *parts: Sequence(batches(*parts)),
    "generator": lambda *parts: (element for element in batches(*parts)),
    "Grain": grain_dataset,
    "Grain's iterator": lambda *parts: grain_dataset(*parts).to_iter_dataset(),
    "DataLoader": data_loader,
    "tf.data": pytest.param(tf_data, marks=requires_tensorflow, id="tf.data"),
}
CASES = pytest.mark.parametrize("make", DATASETS.values(), ids=list(DATASETS))


@pytest.fixture(scope="module")
def expected():
    """Outputs for all texts, and the loss with weights."""
    model = tiny_task("classifier")
    outputs = to_numpy(model(model.preprocessor(TEXTS)))
    losses = keras.losses.sparse_categorical_crossentropy(LABELS, outputs, from_logits=True)
    return model, outputs, to_numpy(losses) @ WEIGHTS / 5


@CASES
def test_datasets(expected, make):
    model, outputs, loss = expected
    np.testing.assert_allclose(model.predict(make(TEXTS), verbose=0), outputs, 1e-5, 1e-6)
    evaluated = model.evaluate(make(TEXTS, LABELS, WEIGHTS), verbose=0, return_dict=True)
    assert evaluated["loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize(
    "texts",
    [
        TEXTS,
        *once(
            np.array(TEXTS),
            np.array(TEXTS, dtype=object),
            np.array(TEXTS).astype("S"),
            np.ma.array(TEXTS, mask=False),
        ),
    ],
    ids=["list", "strings", "objects", "bytes", "nothing masked"],
)
def test_arrays(expected, texts):
    model, outputs, loss = expected
    predicted = model.predict(texts, batch_size=BATCH_SIZE, verbose=0)
    np.testing.assert_allclose(predicted, outputs, 1e-5, 1e-6)
    evaluated = model.evaluate(
        texts, LABELS.tolist(), batch_size=4, sample_weight=WEIGHTS, verbose=0, return_dict=True
    )
    assert evaluated["loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.any_backend
def test_weights_may_be_a_column(expected):
    model, _, loss = expected
    evaluated = model.evaluate(
        TEXTS, LABELS, sample_weight=WEIGHTS[:, None], verbose=0, return_dict=True
    )
    assert evaluated["loss"] == pytest.approx(loss, rel=1e-5)


def test_data_loader_of_pairs():
    model = tiny_task("classifier")
    seconds = TEXTS[::-1]
    expected = model.predict((TEXTS, seconds), verbose=0)
    pairs = data_loader(list(zip(TEXTS, seconds, strict=True)), LABELS)
    np.testing.assert_allclose(model.predict(pairs, verbose=0), expected, 1e-5, 1e-6)


def test_data_loader_of_texts(expected):
    torch = pytest.importorskip("torch")
    model, outputs, _ = expected
    texts = torch.utils.data.DataLoader(TEXTS, batch_size=BATCH_SIZE)
    np.testing.assert_allclose(model.predict(texts, verbose=0), outputs, 1e-5, 1e-6)


# === Passes over arrays ===


def seen(data, epochs=1, **arguments):
    """The rows of each batch of each pass."""
    rows = ArrayBatches((np.arange(11), None, None), batch_size=4, **arguments)
    return [[batch[0].tolist() for batch in rows] for _ in range(epochs)]


@pytest.mark.any_backend
def test_order_without_shuffle():
    assert seen(11, epochs=2) == [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]] * 2


@pytest.mark.any_backend
def test_shuffle_draws_each_pass():
    first, second = seen(11, epochs=2, shuffle=True)
    for epoch in (first, second):
        assert [len(batch) for batch in epoch] == [4, 4, 3]
        assert sorted(flat(epoch)) == list(range(11))
    assert first != second
    keras.utils.set_random_seed(5)
    again = seen(11, epochs=2, shuffle=True)
    keras.utils.set_random_seed(5)
    assert seen(11, epochs=2, shuffle=True) == again
    keras.utils.set_random_seed(6)
    assert seen(11, epochs=2, shuffle=True) != again


class Seen:
    """A preprocessor of integers that remembers the rows of each batch."""

    def __init__(self):
        self.rows = []

    def __call__(self, x):
        self.rows.append([int(row) for row in np.asarray(x)])
        rng = np.random.default_rng(len(x))
        return random_inputs(rng, batch_size=len(x), length=3)


def fit(num_examples=6, **arguments):
    """The rows that `fit` reads, and its history."""
    model = tiny_task("classifier", with_preprocessor=False)
    model.preprocessor = Seen()
    rows = np.arange(num_examples)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        history = model.fit(rows, rows % 7, batch_size=2, verbose=0, **arguments)
    return model.preprocessor.rows, history


def last_passes(rows, epochs, num_batches=3):
    """The rows of the epochs. Keras reads some batches before, to learn their shapes."""
    rows = rows[-epochs * num_batches :]
    return [rows[i : i + num_batches] for i in range(0, len(rows), num_batches)]


def flat(batches):
    return [row for batch in batches for row in batch]


@pytest.mark.any_backend
def test_fit_shuffles_by_default():
    keras.utils.set_random_seed(3)
    first, second = last_passes(fit(epochs=2)[0], 2)
    for epoch in (first, second):
        assert sorted(flat(epoch)) == list(range(6))
        assert epoch != [[0, 1], [2, 3], [4, 5]]
    assert first != second
    keras.utils.set_random_seed(3)
    assert last_passes(fit(epochs=2)[0], 2) == [first, second]


def test_fit_without_shuffle():
    assert last_passes(fit(epochs=2, shuffle=False)[0], 2) == [[[0, 1], [2, 3], [4, 5]]] * 2


def test_validation_split_takes_the_last_examples():
    # 0.3 of 7 examples leaves 4 for training.
    rows, history = fit(7, validation_split=0.3, validation_batch_size=3, shuffle=False)
    trained = [row for row in rows if row in ([0, 1], [2, 3])]
    assert [row for row in rows if row not in trained][-1] == [4, 5, 6]
    assert trained[-2:] == [[0, 1], [2, 3]]
    assert {4, 5, 6}.isdisjoint(flat(trained))
    assert len(history.history["val_loss"]) == 1


@pytest.mark.any_backend
def test_validation_data_is_in_order_and_in_batches_of_the_same_size():
    keras.utils.set_random_seed(3)
    x = np.arange(10, 17)
    rows, _ = fit(4, validation_data=(x, x % 7))
    assert [row for row in rows if row[0] > 9][-4:] == [[10, 11], [12, 13], [14, 15], [16]]


@pytest.mark.any_backend
def test_validation_split_takes_the_weights_too():
    model = tiny_task("classifier")
    # Nothing is learned in the step, so that validation is like evaluation.
    model.compile(keras.optimizers.SGD(0.0))
    history = model.fit(
        TEXTS, LABELS, sample_weight=WEIGHTS, validation_split=0.4, verbose=0
    ).history
    results = model.evaluate(
        TEXTS[3:], LABELS[3:], sample_weight=WEIGHTS[3:], verbose=0, return_dict=True
    )
    assert history["val_loss"][0] == pytest.approx(results["loss"], rel=1e-5)


@pytest.mark.any_backend
def test_a_py_dataset_keeps_its_settings_for_workers():
    dataset = PyDataset(batches(TEXTS))
    dataset.workers, dataset.use_multiprocessing, dataset.max_queue_size = 3, True, 17
    found = preprocessed(dataset, lambda batch: batch)
    assert (found.workers, found.use_multiprocessing, found.max_queue_size) == (3, True, 17)


class Reversed(PyDataset):
    """Batches in the reverse order after each epoch."""

    def on_epoch_end(self):
        self.elements = self.elements[::-1]


@pytest.mark.any_backend
def test_order_of_a_py_dataset():
    in_order = [[i, i + 1] for i in range(0, 14, 2)]

    def epochs(cls, **arguments):
        keras.utils.set_random_seed(3)
        model = tiny_task("classifier", with_preprocessor=False)
        model.preprocessor = Seen()
        dataset = cls([(np.array(rows), np.array(rows) % 7) for rows in in_order])
        model.fit(dataset, epochs=2, verbose=0, **arguments)
        return last_passes(model.preprocessor.rows, 2, 7)

    assert epochs(PyDataset, shuffle=False) == [in_order, in_order]
    # Keras may end an epoch before the first one, to learn the shapes.
    assert sorted(epochs(Reversed, shuffle=False)) == [in_order, in_order[::-1]]
    first, second = epochs(PyDataset)
    assert sorted(first) == sorted(second) == in_order
    assert first != second
    assert in_order not in (first, second)


@pytest.mark.parametrize(
    "arguments",
    [
        {"epochs": 3, "steps_per_epoch": 1},
        *once({"epochs": 3}, {"epochs": 0, "initial_epoch": 0}),
    ],
)
def test_number_of_steps(arguments):
    steps = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: steps.append(step))
    _, history = fit(callbacks=[count], **arguments)
    per_epoch = arguments.get("steps_per_epoch", 3)
    assert steps == list(range(per_epoch)) * arguments["epochs"]
    assert history.params["steps"] == per_epoch


@pytest.mark.any_backend
def test_class_weight():
    model = tiny_task("classifier", dropout=0.0)
    model.output_dropout.rate = 0.0
    outputs = model.predict(TEXTS, verbose=0)
    losses = keras.losses.sparse_categorical_crossentropy(LABELS, outputs, from_logits=True)
    class_weight = {0: 1.0, 1: 4.0, 2: 2.0, 3: 0.25, 6: 0.5}
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(TEXTS, LABELS, batch_size=5, class_weight=class_weight, verbose=0)
    assert history.history["loss"][0] == pytest.approx(to_numpy(losses) @ WEIGHTS / 5, rel=1e-5)


def test_masks_repeat_with_the_seed():
    def losses():
        keras.utils.set_random_seed(21)
        model = tiny_task("masked_lm")
        return model.fit(TEXTS, batch_size=2, epochs=3, verbose=0).history["loss"]

    first = losses()
    assert len(set(first)) == 3
    assert losses() == first


# === Checks ===


@pytest.mark.parametrize("call", ["fit", *once("evaluate", "predict")])
def test_arrays_are_checked_once(call, monkeypatch):
    model = tiny_task("classifier")
    checked = []
    check = type(model.preprocessor).check_texts
    monkeypatch.setattr(
        type(model.preprocessor),
        "check_texts",
        lambda self, x: (checked.append(len(x)), check(self, x)),
    )
    labels = {} if call == "predict" else {"y": LABELS}
    getattr(model, call)(TEXTS, **labels, batch_size=2, verbose=0)
    assert checked == [5]


def test_batches_of_datasets_are_checked():
    model = tiny_task("classifier")
    elements = batches(TEXTS, LABELS)
    before = model.predict(TEXTS, verbose=0)
    for index, bad, message in [
        (1, ([TEXTS[0], None], LABELS[:2]), "None in row 1"),
        (2, (TEXTS[:1], np.array([7])), r"\[0, 7\).*from 7 to 7"),
        (0, (TEXTS[:2], LABELS[:3]), "2 in `x`, 3 in `y`"),
        (0, (TEXTS[0], LABELS[:1]), "one text.*`batch`"),
        (2, (TEXTS[:1],), "needs labels"),
        (1, (TEXTS[:1], LABELS[:1], np.array([np.nan])), "nan in row 0"),
    ]:
        broken = [*elements[:index], bad, *elements[index + 1 :]]
        for make in (PyDataset, Batches):
            with pytest.raises(Exception, match=message):
                model.evaluate(make(broken), verbose=0)
    # An error leaves the model as it was.
    np.testing.assert_array_equal(model.predict(TEXTS, verbose=0), before)


@pytest.mark.any_backend
def test_arguments_beside_datasets():
    model = tiny_task("classifier")
    for name, value in [("y", LABELS), ("sample_weight", WEIGHTS), ("batch_size", 2)]:
        with pytest.raises(ValueError, match=rf"`{name}` must be `None`.*Batches"):
            model.fit(Batches(batches(TEXTS, LABELS)), **{name: value})
    with pytest.raises(ValueError, match=r"validation_split.*x=Batches"):
        model.fit(Batches(batches(TEXTS, LABELS)), validation_split=0.2)


@pytest.mark.any_backend
@pytest.mark.parametrize("fraction", [-0.1, 1.0, 1.5, 0.9])
def test_validation_split_is_checked(fraction):
    with pytest.raises(ValueError, match="validation_split"):
        tiny_task("classifier").fit(TEXTS, LABELS, validation_split=fraction)


@pytest.mark.any_backend
@pytest.mark.parametrize("x", [None, 3, lambda: TEXTS])
def test_not_data(x):
    with pytest.raises(ValueError, match=f"Received: {type(x).__name__}. Put the examples"):
        tiny_task("classifier").predict(x)


@pytest.mark.any_backend
def test_batches_keep_their_order_and_errors():
    slow_first = preprocessed(Batches([3, 1, 2]), lambda n: n * 10)
    assert list(slow_first) == [30, 10, 20]
    assert list(slow_first) == [30, 10, 20]

    def fail(n):
        if n == 4:
            raise ValueError("the fourth")
        return n

    read = []
    with pytest.raises(ValueError, match="the fourth"):
        read.extend(preprocessed(Batches([1, 2, 3, 4, 5]), fail))
    assert read == [1, 2, 3]


@pytest.mark.any_backend
def test_batches_are_preprocessed_one_after_the_other():
    """In several threads, random masks would not repeat, and batches could change places."""
    steps = []

    def slow(n):
        steps.append(n)
        time.sleep(0.02)
        steps.append(n)
        return n

    assert list(preprocessed(Batches([3, 1, 2]), slow)) == [3, 1, 2]
    assert steps == [3, 3, 1, 1, 2, 2]


@pytest.mark.any_backend
def test_data_loader_of_bytes(expected):
    torch = pytest.importorskip("torch")
    model, outputs, _ = expected
    texts = torch.utils.data.DataLoader([text.encode() for text in TEXTS], batch_size=BATCH_SIZE)
    np.testing.assert_allclose(model.predict(texts, verbose=0), outputs, 1e-5, 1e-6)
