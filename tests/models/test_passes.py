"""Each epoch reads all batches of a dataset, whether or not it tells their number."""

import warnings

import grain
import keras
import numpy as np
import pytest

from tests.models.tasks import tiny_task
from tests.models.tiny import TEXTS

NUM_BATCHES = 5


def batches():
    return [([text], np.array([i])) for i, text in enumerate(TEXTS)]


class Unsized:
    """An object without a length that starts again for each `iter`."""

    def __init__(self):
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        return iter(batches())


class Streaming(Unsized):
    """A dataset with `map`, as the streaming ones of Hugging Face."""

    def map(self, function):
        raise AssertionError("Only a Grain dataset has this method.")


def unsized_data_loader():
    data = pytest.importorskip("torch").utils.data

    class Examples(data.IterableDataset):
        def __iter__(self):
            return iter(zip(TEXTS, range(NUM_BATCHES), strict=True))

    return data.DataLoader(Examples(), batch_size=1)


def grain_stream():
    return grain.MapDataset.source(batches()).to_iter_dataset()


CASES = pytest.mark.parametrize("make", [Unsized, Streaming, unsized_data_loader, grain_stream])


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


@pytest.fixture
def ignored_end():
    """Keras warns when data of unknown length ends."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Your input ran out of data", UserWarning)
        yield


@pytest.mark.usefixtures("ignored_end")
@CASES
def test_every_epoch_reads_all_batches(make):
    steps = Steps()
    tiny_task("classifier").fit(
        make(), validation_data=make(), epochs=3, callbacks=[steps], verbose=0
    )
    assert steps.trained == steps.validated == [NUM_BATCHES] * 3


@pytest.mark.usefixtures("ignored_end")
def test_generators_are_read_once_as_in_keras():
    steps = Steps()
    model = tiny_task("classifier")
    model.fit((batch for batch in batches()), epochs=2, callbacks=[steps], verbose=0)
    assert steps.trained[0] == NUM_BATCHES
    # Keras has the first two batches in memory.
    assert steps.trained[1] == 2


@pytest.mark.any_backend
def test_a_generator_continues_in_the_next_epoch():
    read = []

    def generate():
        for batch in batches():
            read.append(batch[1][0])
            yield batch

    steps = Steps()
    generator = generate()
    model = tiny_task("classifier")
    model.fit(generator, steps_per_epoch=2, epochs=2, callbacks=[steps], verbose=0)
    assert steps.trained == [2, 2]
    # The rest remains for a later call.
    assert read == [0, 1, 2, 3]


@pytest.mark.parametrize("make", [lambda: iter([]), lambda: Empty()])
def test_without_batches(make):
    model = tiny_task("classifier")
    for call in (model.predict, model.fit):
        with pytest.raises(ValueError, match=r"at least one batch.*without batches"):
            call(make(), verbose=0)


class Empty(Unsized):
    def __iter__(self):
        return iter([])


@pytest.mark.usefixtures("ignored_end")
def test_class_weight_of_data_of_any_kind():
    def loss(data, **arguments):
        model = tiny_task("classifier", dropout=0.0)
        model.output_dropout.rate = 0.0
        keras.utils.set_random_seed(5)
        model.set_weights([np.random.normal(size=w.shape, scale=0.3) for w in model.weights])
        history = model.fit(data, class_weight={0: 3.0, 3: 0.5}, verbose=0, **arguments)
        return history.history["loss"][0]

    model_of_lists = loss(TEXTS, y=np.arange(5), batch_size=1, shuffle=False)
    for make in (Unsized, unsized_data_loader, grain_stream, lambda: iter(batches())):
        assert loss(make()) == pytest.approx(model_of_lists, rel=1e-5)


@pytest.mark.any_backend
def test_class_weight_beside_sample_weight():
    model = tiny_task("classifier")
    with pytest.raises(ValueError, match="`class_weight` must be `None` if examples have weights"):
        model.fit(TEXTS, np.arange(5), sample_weight=np.ones(5), class_weight={0: 2.0}, verbose=0)


@pytest.mark.any_backend
def test_threads_find_a_preprocessor_that_is_built(monkeypatch):
    """KerasHub makes the packer after Keras has marked the preprocessor as built."""
    model = tiny_task("classifier")
    built = []
    preprocess = type(model.preprocessor).preprocess

    def recorded(preprocessor, *args):
        built.append(preprocessor.packer is not None)
        return preprocess(preprocessor, *args)

    monkeypatch.setattr(type(model.preprocessor), "preprocess", recorded)
    model.preprocessor.packer, model.preprocessor.built = None, False
    model.predict(TEXTS, batch_size=2, verbose=0)
    assert built[0]
    assert all(built)
