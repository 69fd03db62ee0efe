"""`ExactResume`: an interrupted training has the results of one that was not interrupted."""

import functools
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import grain
import keras
import numpy as np
import pytest

from keras_diet import _backend
from keras_diet.models import DietBertMaskedLM, DietBertMaskedLMPreprocessor, DietBertTokenizer
from keras_diet.pretraining import masked_lm_dataset
from keras_diet.training import ExactResume
from keras_diet.training.checkpoint_folder import CheckpointFolder
from keras_diet.training.processes import Processes
from keras_diet.training.training_state import values_of
from tests.helpers import once
from tests.models.tiny import TEXTS, VOCABULARY, tiny_backbone
from tests.training.resumed import (
    EPOCHS,
    STEPS,
    Crash,
    Noisy,
    assert_continues,
    assert_same,
    data_of,
    grain_batches,
    make_arrays,
    make_model,
    result,
    train,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The results of a training on arrays."""
    return result(*train(tmp_path_factory.mktemp("uninterrupted")))


def steps_of(folder):
    return [int(path.stem.removeprefix("step_")) for path in sorted(folder.glob("step_*.npz"))]


# === The same results ===


@pytest.mark.parametrize(
    "data",
    [
        "py_dataset",
        "endless grain",
        *once("arrays", "arrays shuffled", "grain", "grain iterator", "grain loader"),
    ],
)
def test_a_crashed_training_continues_bitwise(tmp_path, data):
    """Within the first epoch, and within a later one after a second crash."""
    options = {"data": data, "validation_data": make_arrays()}
    assert_continues(functools.partial(train, **options), tmp_path, 4, 13)


@pytest.mark.any_backend
@pytest.mark.parametrize("steps", [0, 2, 3, STEPS - 1, STEPS, STEPS + 1, 3 * STEPS - 1])
def test_a_crash_before_a_step(tmp_path, uninterrupted, steps):
    assert train(tmp_path, steps, save_every=1) is None
    assert steps_of(tmp_path) == list(range(max(1, steps - 1), steps + 1))
    assert_same(result(*train(tmp_path, save_every=1)), uninterrupted)


def train_two_steps_at_once(folder, crash_after=None, **options):
    model = make_model()
    model.compile(keras.optimizers.Adam(0.01), "mse", steps_per_execution=2)
    return train(folder, crash_after, model, **options)


several_steps = pytest.mark.skipif(
    keras.config.backend() == "torch", reason="Keras refuses several steps on PyTorch"
)


@several_steps
@pytest.mark.parametrize("data", ["arrays", "grain iterator"])
def test_several_steps_in_one_execution(tmp_path, data):
    """11 batches in an epoch. The last execution has one step."""
    run = functools.partial(train_two_steps_at_once, data=data)
    assert_continues(run, tmp_path, 3, 6)


@several_steps
def test_executions_that_go_beyond_the_steps_of_an_epoch(tmp_path):
    """Keras takes 6 steps in an epoch of 5. The sixth is the last one, so it is saved later."""
    options = {"data": "endless grain", "steps_per_epoch": 5, "save_every": 6}
    run = functools.partial(train_two_steps_at_once, **options)
    expected = assert_continues(run, tmp_path, 4, 5)
    assert len(expected["loss"]) == EPOCHS


class Sizes(keras.layers.Layer):
    """Records the size of batches that a compiled program knows."""

    def __init__(self):
        super().__init__()
        self.found = []

    def call(self, x):
        self.found.append(x.shape[0])
        return x


@pytest.mark.any_backend("tensorflow")
@pytest.mark.parametrize(
    ("data", "examples", "size"),
    [
        ("arrays", 53, None),
        ("arrays", 50, 5),
        ("grain", 53, None),
        ("grain", 50, 5),
        ("endless grain", 50, None),
    ],
)
def test_programs_know_the_size_of_batches_if_all_are_equal(tmp_path, data, examples, size):
    """A TPU needs it. The first batch, the last batch and batches between them are compared."""
    options = data_of(data)
    if data == "arrays":
        options = {**options, "x": options["x"][:examples], "y": options["y"][:examples]}
    elif data == "grain":
        options = {"x": grain_batches()[:examples].batch(5)}
    sizes = Sizes()
    model = make_model()
    model = keras.Sequential([keras.Input((7,)), sizes, *model.layers])
    model.compile("sgd", "mse", jit_compile=False)
    model.fit(**options, epochs=1, verbose=0, callbacks=[ExactResume(tmp_path, 3)])
    assert sizes.found[-1] == size


@pytest.mark.any_backend
def test_a_model_in_bfloat16(tmp_path):
    def run(folder, crash_after=None):
        model = make_model(dtype="bfloat16")
        assert model.layers[0].kernel.dtype == "bfloat16"
        return train(folder, crash_after, model)

    assert_continues(run, tmp_path, 7)


@pytest.mark.parametrize("steps", [5, 10, 15])
def test_a_checkpoint_at_the_end_of_an_epoch(tmp_path, steps):
    """Epochs of 5 steps share an iterator. A pass over the data ends with the second epoch."""
    x, y = make_arrays()
    options = {"x": x[:50], "y": y[:50], "steps_per_epoch": 5, "save_every": 5, "epochs": 4}
    assert_continues(functools.partial(train, **options), tmp_path, steps + 2)


@pytest.mark.parametrize("steps", [10, *once(5, 15)])
def test_a_pass_of_unknown_length_that_ends_with_an_epoch(tmp_path, steps):
    """The next epoch begins a new pass. Without the callback, it would have no steps."""
    data = grain_batches()[:50].batch(5).to_iter_dataset(grain.ReadOptions(1, 2))
    options = {"data": "grain", "x": data, "steps_per_epoch": 5, "save_every": 5, "epochs": 4}
    expected = assert_continues(functools.partial(train, **options), tmp_path, steps + 2)
    assert np.all(expected["loss"] > 0)


@pytest.mark.any_backend
def test_a_pass_of_unknown_length_that_ends_within_an_epoch(tmp_path):
    options = {"data": "grain iterator", "steps_per_epoch": 4, "save_every": 4, "epochs": 5}
    with pytest.warns(UserWarning, match="ran out of data"):
        assert_continues(functools.partial(train, **options), tmp_path, 13)


@pytest.mark.any_backend
def test_a_checkpoint_where_a_pass_ends(tmp_path):
    """Keras does not know in the first epoch that its last batch is the last one."""
    run = functools.partial(train, data="grain iterator", save_every=STEPS)
    assert_continues(run, tmp_path, STEPS + 2)


@pytest.mark.any_backend
def test_a_checkpoint_where_a_pass_ends_within_an_epoch(tmp_path):
    options = {"data": "arrays steps", "epochs": 5, "save_every": STEPS}
    with pytest.warns(UserWarning, match="ran out of data"):
        assert_continues(functools.partial(train, **options), tmp_path, STEPS + 1)


@pytest.mark.any_backend
def test_pass_of_the_data_that_ends_within_epochs(tmp_path):
    """11 batches in epochs of 4 steps: the third epoch has only 3 steps, as without crashes."""
    options = {"data": "arrays steps", "epochs": 5}
    with pytest.warns(UserWarning, match="ran out of data"):
        expected = result(*train(tmp_path / "once", **options))
    for steps in (5, 4):
        assert train(tmp_path / "crashed", steps, **options) is None
    with pytest.warns(UserWarning, match="ran out of data"):
        found = train(tmp_path / "crashed", **options)
    assert_same(result(*found), expected)


def train_on_texts(folder, crash_after=None):
    """Train a task on a list of texts in a new order, with random masks of its preprocessor."""
    keras.utils.set_random_seed(5)
    tokenizer = DietBertTokenizer(VOCABULARY)
    preprocessor = DietBertMaskedLMPreprocessor(
        tokenizer, sequence_length=13, mask_selection_length=3, mask_selection_rate=0.4
    )
    masked_lm = DietBertMaskedLM(tiny_backbone(dropout=0.2, num_layers=1), preprocessor)
    options = {"x": TEXTS * 3, "batch_size": 2, "validation_split": 0.2, "validation_data": None}
    return train(folder, crash_after, masked_lm, **{"y": None, "shuffle": True, **options})


def test_a_task_on_texts_continues_bitwise(tmp_path):
    assert_continues(train_on_texts, tmp_path, 4, 5)


@pytest.mark.any_backend
@pytest.mark.parametrize("is_endless", [False, True])
def test_a_task_on_an_iterator_of_grain_continues_bitwise(tmp_path, is_endless):
    """A task reads its data through a thread. An epoch ends where the iterator ends."""
    tokenizer = DietBertTokenizer(VOCABULARY)
    token_ids = np.random.default_rng(3).integers(5, len(VOCABULARY), (23, 9))
    batches = masked_lm_dataset(token_ids, tokenizer, 2, seed=4, repeat=is_endless)
    options = {"data": "grain", "steps_per_epoch": 7 if is_endless else None}

    def train_task(folder, crash_after=None):
        keras.utils.set_random_seed(5)
        masked_lm = DietBertMaskedLM(tiny_backbone(dropout=0.2, num_layers=1))
        data = batches.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2))
        return train(folder, crash_after, masked_lm, **{**options, "x": data})

    expected = assert_continues(train_task, tmp_path, 4, 12)
    assert len(expected["loss"]) == EPOCHS


@pytest.mark.any_backend
def test_a_thread_preprocesses_ahead(tmp_path):
    readers = []

    class Recorder(DietBertMaskedLMPreprocessor):
        def call(self, *args, **kwargs):
            readers.append(threading.current_thread())
            return super().call(*args, **kwargs)

    tokenizer = DietBertTokenizer(VOCABULARY)
    preprocessor = Recorder(tokenizer, sequence_length=13, mask_selection_length=3)
    masked_lm = DietBertMaskedLM(tiny_backbone(num_layers=1), preprocessor)
    texts = TEXTS * 3
    train(tmp_path, model=masked_lm, x=texts, y=None, batch_size=2, epochs=1)
    steps = -(-len(texts) // 2)
    assert readers[-steps:].count(threading.main_thread()) == 0


@pytest.mark.any_backend
@pytest.mark.parametrize("steps", [5, STEPS, STEPS + 4])
def test_a_callback_that_changes_the_rate(tmp_path, steps):
    """Within an epoch, and at its start: the callback multiplies the rate of the epoch before."""
    options = {"callbacks": [keras.callbacks.LearningRateScheduler(lambda _, rate: rate / 3)]}
    model, history = train(tmp_path / "once", **options)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.01 / 27)
    assert train(tmp_path / "crashed", steps, save_every=1, **options) is None
    found = train(tmp_path / "crashed", save_every=1, **options)
    assert_same(result(*found), result(model, history))


@pytest.mark.any_backend
def test_a_metric_with_a_value_for_each_class(tmp_path):
    def run(folder, crash_after=None):
        model = make_model()
        model.compile("sgd", "mse", metrics=[keras.metrics.F1Score(threshold=0.1)])
        return train(folder, crash_after, model)

    expected = assert_continues(run, tmp_path, STEPS + 5)
    assert expected["f1_score"].shape == (EPOCHS, 3)


@pytest.mark.any_backend("tensorflow")
def test_a_model_that_is_built_by_its_first_batch(tmp_path):
    """It knows other shapes when it is built by `fit` than when the training continues."""

    def run(folder, crash_after=None):
        keras.utils.set_random_seed(5)
        model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(3)])
        model.compile("sgd", "mse")
        return train(folder, crash_after, model)

    assert_continues(run, tmp_path, 7)


@pytest.mark.any_backend
def test_a_dataset_that_holds_another_dataset(tmp_path):
    """Its own `start_at` chooses the batches."""

    class Reversed(Noisy):
        def __init__(self, *arrays):
            super().__init__(*arrays)
            self.dataset = list(arrays)
            self.epoch = 0

        def start_at(self, epoch):
            self.epoch = epoch

        def __getitem__(self, index):
            return super().__getitem__(STEPS - 1 - index if self.epoch % 2 else index)

    def train_reversed(folder, crash_after=None):
        return train(folder, crash_after, data="grain", x=Reversed(*make_arrays()))

    assert_continues(train_reversed, tmp_path, STEPS + 4)


class TwoOptimizers(keras.Sequential):
    """Trains its last layer with an optimizer of its own."""

    def train_step(self, data):
        x, y = data
        loss = self.compute_loss(x, y, self(x, training=True))
        self.zero_grad()
        loss.backward()
        last = self.layers[-1].trainable_variables
        for optimizer, variables in (
            (self.optimizer, self.trainable_variables[: -len(last)]),
            (self.optimizer_of_last, last),
        ):
            optimizer.apply([variable.value.grad for variable in variables], variables)
        return {"loss": loss}


def make_two_optimizers(rate=0.02, is_built=True, optimizer_class=keras.optimizers.Adam):
    model = make_model(model_class=TwoOptimizers)
    model.optimizer_of_last = optimizer_class(rate)
    if is_built:
        model.optimizer_of_last.build(model.layers[-1].trainable_variables)
    return model


@pytest.mark.any_backend
def test_a_model_with_two_optimizers(tmp_path):
    def run(folder, crash_after=None):
        return train(folder, crash_after, make_two_optimizers())

    assert_continues(run, tmp_path, 7)
    with pytest.raises(ValueError, match=r"optimizer_of_last\.learning_rate=0\.0\d+ \(the checkp"):
        train(tmp_path / "crashed", model=make_two_optimizers(rate=0.04))
    other_class = make_two_optimizers(optimizer_class=keras.optimizers.Nadam)
    with pytest.raises(ValueError, match=r"optimizer_of_last=Nadam \(the checkpoint has Adam\)"):
        train(tmp_path / "crashed", model=other_class)
    with pytest.raises(ValueError, match=r"attribute 'optimizer_of_last' is not built\. Call"):
        train(tmp_path / "new", model=make_two_optimizers(is_built=False))


@pytest.mark.any_backend("tensorflow")
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_the_optimizer_of_compile_as_an_attribute(tmp_path, is_wrapped):
    """It may have a second name in the model. On TensorFlow, the first step builds it."""

    def run(folder, crash_after=None):
        # Keras wraps the optimizer like this for `mixed_float16`.
        optimizer = keras.optimizers.Adam(0.01)
        wrapper = keras.optimizers.LossScaleOptimizer(optimizer) if is_wrapped else optimizer
        model = make_model(optimizer=wrapper)
        model.optimizer_of_all = optimizer
        assert not model.optimizer.built
        return train(folder, crash_after, model)

    assert_continues(run, tmp_path, 7)


@pytest.mark.any_backend
def test_processes_share_the_values_of_all_optimizers():
    """A checkpoint has them once, and not for each process."""
    model = make_two_optimizers()
    model.optimizer.build(model.trainable_variables[:-2])
    optimizers = (model.optimizer, model.optimizer_of_last)
    shared, own = values_of(model)
    number = sum(len(optimizer.variables) for optimizer in optimizers)
    assert len(shared) == len(model.trainable_variables) + number
    assert not set(shared) & set(own)


class UnseededNoise(keras.layers.Layer):
    """Draws from the generator that all of Keras shares."""

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x))


@pytest.mark.skipif(keras.config.backend() == "jax", reason="Keras refuses such draws on JAX")
def test_draws_without_a_seed(tmp_path):
    def run(folder, crash_after=None):
        keras.utils.set_random_seed(5)
        model = keras.Sequential([keras.Input((7,)), UnseededNoise(), keras.layers.Dense(3)])
        model.compile("sgd", "mse")
        return train(folder, crash_after, model)

    assert_continues(run, tmp_path, 7)


@pytest.mark.any_backend
def test_an_optimizer_in_an_optimizer(tmp_path):
    """Its name has another number when the process makes a second one."""

    def run(folder, crash_after=None):
        inner = keras.optimizers.Adam(0.01)
        return train(
            folder, crash_after, make_model(optimizer=keras.optimizers.LossScaleOptimizer(inner))
        )

    assert_continues(run, tmp_path, 7)


@pytest.mark.any_backend
def test_a_finished_training_is_not_trained_again(tmp_path, uninterrupted):
    train(tmp_path)
    crash = Crash(0)
    model = make_model()
    resume = ExactResume(tmp_path, save_every=3)
    with pytest.warns(UserWarning, match=rf"{tmp_path} holds a training that has finished its 3"):
        history = model.fit(**data_of("arrays"), epochs=3, verbose=0, callbacks=[crash, resume])
    assert_same(result(model, history), uninterrupted)


@pytest.mark.any_backend
def test_fewer_epochs_than_a_finished_training(tmp_path, uninterrupted):
    train(tmp_path)
    with pytest.warns(UserWarning, match="is not trained again"):
        found = train(tmp_path, epochs=2)
    assert_same(result(*found), uninterrupted)


@pytest.mark.any_backend
def test_batches_of_grain_that_are_arrays(tmp_path):
    """The model has a loss without targets."""

    def run(folder, crash_after=None):
        keras.utils.set_random_seed(5)
        outputs = keras.layers.Dense(3, activity_regularizer="l2")
        model = keras.Sequential([keras.Input((7,)), keras.layers.Dropout(0.3), outputs])
        model.compile("sgd")
        data = grain.MapDataset.source(make_arrays()[0]).batch(5)
        return train(folder, crash_after, model, data="grain", x=data)

    assert_continues(run, tmp_path, 7)


@pytest.mark.any_backend
def test_more_epochs_continue_a_finished_training(tmp_path, uninterrupted):
    train(tmp_path, epochs=2)
    assert_same(result(*train(tmp_path, epochs=3)), uninterrupted)


@pytest.mark.any_backend
def test_the_next_fit_begins_with_its_first_epoch(tmp_path):
    """After a training that has continued with its second epoch, finished or with an error."""
    for crash_after in (None, 2):
        folder, model = tmp_path / f"{crash_after}", make_model()
        assert train(folder, STEPS + 4) is None
        train(folder, crash_after, model)
        history = model.fit(*make_arrays(), epochs=2, verbose=0)
        assert history.epoch == [0, 1]


@pytest.mark.any_backend
def test_the_next_fit_after_a_finished_training(tmp_path):
    """The training has no epoch left."""
    train(tmp_path)
    with pytest.warns(UserWarning, match="is not trained again"):
        model, _ = train(tmp_path)
    assert model.fit(*make_arrays(), epochs=2, verbose=0).epoch == [0, 1]


class StopAfterTwo(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = epoch == 1


@pytest.mark.any_backend
def test_a_training_that_was_stopped_early_is_finished(tmp_path):
    expected = result(*train(tmp_path, callbacks=[StopAfterTwo()]))
    with pytest.warns(UserWarning, match="is not trained again"):
        found = train(tmp_path)
    assert_same(result(*found), expected)


@pytest.mark.any_backend
def test_without_a_seed_the_training_continues_too(tmp_path, monkeypatch):
    """The order of the data and the dropout come from the checkpoint."""
    monkeypatch.setattr(keras.utils, "set_random_seed", lambda seed: None)
    orders = []

    class Recorder(Noisy):
        def __getitem__(self, index):
            orders.append(index)
            return super().__getitem__(index)

    assert train(tmp_path, 5, x=Recorder(*make_arrays()), **{"data": "py_dataset"}) is None
    seen = orders[:]
    del orders[:]
    train(tmp_path, data="py_dataset", x=Recorder(*make_arrays()), epochs=1)
    # Before the first step, a batch builds the metrics, and the first and the last are compared.
    order = seen[3:6] + orders[-8:]
    assert sorted(order) == list(range(STEPS))
    assert order != list(range(STEPS))


# === Saving ===


@pytest.mark.any_backend
def test_checkpoints_are_saved_every_few_steps(tmp_path):
    assert train(tmp_path, 10, save_every=4) is None
    assert steps_of(tmp_path) == [4, 8]
    assert train(tmp_path, 8, save_every=4) is None
    assert steps_of(tmp_path) == [12, 16]
    train(tmp_path, save_every=4)
    assert steps_of(tmp_path) == [32, 33]


@pytest.mark.any_backend
def test_the_last_step_of_an_epoch_is_saved_after_its_validation(tmp_path):
    assert train(tmp_path, 12, save_every=11) is None
    assert steps_of(tmp_path) == [11]
    _, history = train(tmp_path, save_every=11)
    assert history.epoch == [0, 1, 2]


@pytest.mark.any_backend
def test_the_number_of_checkpoints(tmp_path):
    make_model().fit(
        **data_of("arrays"), epochs=1, verbose=0, callbacks=[ExactResume(tmp_path, 2, keep=3)]
    )
    assert steps_of(tmp_path) == [8, 10, 11]


@pytest.mark.any_backend
def test_a_truncated_checkpoint_is_skipped(tmp_path, uninterrupted):
    assert train(tmp_path, 8) is None
    newest = max(tmp_path.glob("step_*.npz"))
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match=r"step_000000000006.npz is damaged and is skipped"):
        found = train(tmp_path)
    assert_same(result(*found), uninterrupted)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("crash_after", "save_every", "kept"),
    [
        # The next checkpoint has the name of the damaged one, and only its age deletes it.
        (4, 3, [6, 9]),
        # The damaged one has a higher number than the next checkpoint.
        (2, 7, [6, 7]),
    ],
)
def test_a_damaged_checkpoint_gives_way_to_good_ones(tmp_path, crash_after, save_every, kept):
    assert train(tmp_path, 10) is None
    assert steps_of(tmp_path) == [6, 9]
    max(tmp_path.glob("step_*.npz")).write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"):
        assert train(tmp_path, crash_after, save_every=save_every) is None
    assert steps_of(tmp_path) == kept


@pytest.mark.any_backend
def test_a_damaged_name_can_be_used_again(tmp_path):
    checkpoints = CheckpointFolder(tmp_path, keep=2)
    for step in (6, 9):
        checkpoints.write(step, {}, {})
    (tmp_path / "step_000000000009.npz").write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"):
        checkpoints.read()
    for step in (7, 9, 10):
        checkpoints.write(step, {}, {})
    assert steps_of(tmp_path) == [9, 10]


@pytest.mark.any_backend
def test_a_changed_byte_is_noticed(tmp_path, uninterrupted):
    assert train(tmp_path, 8) is None
    newest = max(tmp_path.glob("step_*.npz"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    with pytest.warns(UserWarning, match="is damaged"):
        assert_same(result(*train(tmp_path)), uninterrupted)


@pytest.mark.any_backend
@pytest.mark.parametrize("bit", [1, 64])
def test_a_changed_byte_in_the_list_of_files_is_noticed(tmp_path, bit):
    """A flag there says that a file is encrypted, or packed in an unknown way."""
    checkpoints = CheckpointFolder(tmp_path, keep=2)
    for step in (6, 9):
        checkpoints.write(step, {"step": step}, {"x": np.ones(3)})
    content = bytearray((tmp_path / "step_000000000009.npz").read_bytes())
    content[content.rindex(b"PK\1\2") + 8] ^= bit
    (tmp_path / "step_000000000009.npz").write_bytes(content)
    with pytest.warns(UserWarning, match="is damaged"):
        assert checkpoints.read()[0] == {"step": 6}


@pytest.mark.any_backend
def test_only_damaged_checkpoints_are_refused(tmp_path):
    assert train(tmp_path, 8) is None
    for path in tmp_path.glob("step_*.npz"):
        path.write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="is damaged"),
        pytest.raises(ValueError, match=r"no checkpoint that can be read.*2 damaged files"),
    ):
        train(tmp_path)


@pytest.mark.any_backend
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's device that is full")
def test_a_full_disk_keeps_the_last_checkpoint(tmp_path, uninterrupted):
    class FullDisk(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 4:
                (tmp_path / "unfinished").symlink_to("/dev/full")

    crash = Crash(8)
    with pytest.warns(UserWarning, match=r"could not save step 6 .*No space left.*continues"):
        assert train(tmp_path, callbacks=[FullDisk()], crash_after=8) is None
    assert crash.steps == 8
    assert steps_of(tmp_path) == [3]
    assert_same(result(*train(tmp_path)), uninterrupted)


@pytest.mark.any_backend
def test_a_read_only_folder_keeps_the_last_checkpoint(tmp_path, uninterrupted, monkeypatch):
    assert train(tmp_path, 4) is None

    def refuse(*paths):
        raise PermissionError("Read-only file system")

    # The permissions of a folder do not hold for the superuser, who often runs tests.
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.warns(UserWarning, match=r"could not save step 33 .*Read-only"):
            found = train(tmp_path, save_every=40)
    assert_same(result(*found), uninterrupted)
    assert [path.name for path in tmp_path.iterdir()] == ["step_000000000003.npz"]


# === SIGTERM ===


class Terminate(keras.callbacks.Callback):
    """Send SIGTERM to this process within a step."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_batch_begin(self, batch, logs=None):
        if self.step == 0:
            signal.raise_signal(signal.SIGTERM)
        self.step -= 1


@pytest.mark.any_backend
@pytest.mark.parametrize("step", [4, STEPS - 1])
def test_sigterm_saves_and_stops(tmp_path, uninterrupted, step):
    previous = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as error:
        train(tmp_path, callbacks=[Terminate(step)])
    assert error.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == previous
    assert steps_of(tmp_path)[-1] == step + 1
    assert_same(result(*train(tmp_path)), uninterrupted)


@pytest.mark.any_backend
def test_sigterm_after_the_last_step_stops_too(tmp_path, uninterrupted, monkeypatch):
    """The signal comes when the last epoch is saved, before the end of the training is."""
    save = CheckpointFolder.write

    def write(self, step, states, arrays):
        if step == EPOCHS * STEPS and not states[0]["finished_epochs"]:
            signal.raise_signal(signal.SIGTERM)
        save(self, step, states, arrays)

    monkeypatch.setattr(CheckpointFolder, "write", write)
    with pytest.raises(SystemExit):
        train(tmp_path, save_every=1)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match="is not trained again"):
        found = train(tmp_path, save_every=1)
    assert_same(result(*found), uninterrupted)


@pytest.mark.any_backend
def test_sigterm_after_an_error_is_handled_as_before(tmp_path, monkeypatch):
    received = []
    previous = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        assert train(tmp_path, 4) is None
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert received == [signal.SIGTERM]


# === What is refused ===


def changed_at(row):
    _, y = make_arrays()
    y[row] += 1
    return y


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """Folders of crashed trainings."""
    folders = {}
    for data in ("arrays", "grain"):
        folders[data] = tmp_path_factory.mktemp("crashed")
        assert train(folders[data], 5, data=data) is None
    return folders


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "options, message",
    [
        (lambda: {"batch_size": 7}, r"batch_size=7 \(the checkpoint has 5\)"),
        (lambda: {"model": make_model(seed=6)}, r"seed=6 \(the checkpoint has 5\)"),
        (
            lambda: {"x": make_arrays()[0][:51], "y": make_arrays()[1][:51]},
            r"number of examples=51 \(the checkpoint has 53\)",
        ),
        (lambda: {"x": make_arrays()[0] + 1}, "with first examples=checksum"),
        (lambda: {"y": changed_at(52)}, "with last examples=checksum"),
        (lambda: {"shuffle": True}, r"shuffle=True \(the checkpoint has False\)"),
        (lambda: {"steps_per_epoch": 9}, r"steps_per_epoch=9 \(the checkpoint has None\)"),
        (
            lambda: {"model": make_model(optimizer=keras.optimizers.SGD(0.01))},
            r"optimizer=SGD \(the checkpoint has Adam\)",
        ),
        (
            lambda: {"model": make_model(optimizer=keras.optimizers.Adam(0.03))},
            r"optimizer.learning_rate=0.0\d* \(the checkpoint has 0.0\d*\)",
        ),
        (lambda: {"model": make_model(units=17)}, r"variable 0 \(kernel\)=\(7, 17\).*\(7, 13\)"),
        (lambda: {"model": make_model(dropout=0.2)}, "with model=checksum"),
    ],
)
def test_another_training_is_refused(crashed, options, message):
    with pytest.raises(ValueError, match=f"checkpoint of another training.*{message}"):
        train(crashed["arrays"], **options())


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "dataset, message",
    [
        (lambda: grain_batches(seed=4).batch(5), "with first batch=checksum"),
        (lambda: grain_batches().batch(7), r"batch_size=7 \(the checkpoint has 5\)"),
        (lambda: grain_batches()[:50].batch(5), r"batches=10 \(the checkpoint has 11\)"),
        (lambda: grain_batches()[:52].batch(5), "with last batch=checksum"),
    ],
)
def test_another_grain_dataset_is_refused(crashed, dataset, message):
    with pytest.raises(ValueError, match=f"checkpoint of another training.*{message}"):
        train(crashed["grain"], x=dataset(), data="grain")


@pytest.mark.any_backend
def test_another_py_dataset_is_refused(tmp_path):
    """It has the same number of batches."""
    x, y = make_arrays()
    assert train(tmp_path, 5, data="grain", x=Noisy(x, y)) is None
    with pytest.raises(ValueError, match=r"checkpoint of another training.*with first batch="):
        train(tmp_path, data="grain", x=Noisy(2 * x, y))
    with pytest.raises(ValueError, match=r"checkpoint of another training.*with last batch="):
        train(tmp_path, data="grain", x=Noisy(x[:52], y[:52]))


@pytest.mark.any_backend
def test_tensors_that_record_gradients(tmp_path, uninterrupted):
    import torch

    x, y = (torch.tensor(array, requires_grad=True) for array in make_arrays())
    assert_same(result(*train(tmp_path, x=x, y=y)), uninterrupted)


@pytest.mark.any_backend
def test_another_device_is_refused(crashed, monkeypatch):
    monkeypatch.setattr(_backend, "platform", lambda: "tpu")
    with pytest.raises(ValueError, match=r"device=tpu \(the checkpoint has cpu\)"):
        train(crashed["arrays"])


@pytest.mark.any_backend
def test_processes_with_other_checkpoints_are_refused(crashed, monkeypatch):
    monkeypatch.setattr(Processes, "all", lambda self, value: [value, 6])
    with pytest.raises(ValueError, match=r"same files in all processes.*steps \[3, 6\]"):
        train(crashed["arrays"])


@pytest.mark.any_backend
def test_several_processes_of_tensorflow_are_refused(monkeypatch):
    monkeypatch.setattr(keras.config, "backend", lambda: "tensorflow")

    def model(*jobs):
        resolver = SimpleNamespace(cluster_spec=lambda: SimpleNamespace(jobs=list(jobs)))
        strategy = SimpleNamespace(num_replicas_in_sync=2, cluster_resolver=resolver)
        return SimpleNamespace(distribute_strategy=strategy)

    assert Processes(model()).devices == "2 replicas"
    with pytest.raises(ValueError, match="several processes of tensorflow"):
        Processes(model("worker"))


@pytest.mark.any_backend
def test_a_generator_is_refused(tmp_path):
    x, y = make_arrays()
    batches = ((x[i : i + 5], y[i : i + 5]) for i in range(0, 50, 5))
    with pytest.raises(ValueError, match=r"Received: Generator.*Pass arrays, lists.*Grain"):
        train(tmp_path, data="grain", x=batches)


@pytest.mark.any_backend
def test_a_data_loader_is_refused(tmp_path):
    import torch

    loader = torch.utils.data.DataLoader(list(zip(*make_arrays(), strict=True)), batch_size=5)
    with pytest.raises(ValueError, match=r"Received: TorchDataLoader.*Pass arrays"):
        train(tmp_path, data="grain", x=loader)


@pytest.mark.any_backend("tensorflow")
def test_tf_data_is_refused(tmp_path):
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(make_arrays()).shuffle(53).batch(5)
    with pytest.raises(ValueError, match=r"Received: TFDataset.*Pass arrays"):
        train(tmp_path, data="grain", x=dataset)


@pytest.mark.any_backend
def test_datasets_that_cannot_resume_are_refused(tmp_path):
    class Changing(Noisy):
        def on_epoch_end(self):
            pass

    with pytest.raises(ValueError, match=r"needs a method `start_at.*Received: Changing"):
        train(tmp_path, data="grain", x=Changing(*make_arrays()))
    with pytest.raises(ValueError, match=r"without workers\. Received: workers=2"):
        train(tmp_path, data="grain", x=Noisy(*make_arrays(), workers=2))
    dropped = grain_batches().batch(5).filter(lambda batch: batch[0][0, 0] < 0.5)
    first = next(index for index in range(STEPS) if dropped[index] is None)
    with pytest.raises(ValueError, match=rf"without a batch at index {first}, as `filter`"):
        train(tmp_path, data="grain", x=dropped)
    with pytest.raises(ValueError, match=r"`shuffle` must be a bool.*'batch'"):
        train(tmp_path, shuffle="batch")


@pytest.mark.any_backend
@pytest.mark.parametrize("name, value", [("save_every", 0), ("keep", 0), ("save_every", "epoch")])
def test_bad_arguments(name, value):
    arguments = {"folder": "run", "save_every": 3, name: value}
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer.*{value!r}"):
        ExactResume(**arguments)


@pytest.mark.any_backend
@pytest.mark.parametrize("folder", [None, 3, "", Path(__file__)])
def test_a_bad_folder(folder):
    with pytest.raises(ValueError, match=r"`folder` must be the path of a folder.*: folder="):
        ExactResume(folder, save_every=3)


@pytest.mark.any_backend
def test_outside_of_fit_it_is_refused(tmp_path):
    callbacks = keras.callbacks.CallbackList([ExactResume(tmp_path, 3)], model=make_model())
    with pytest.raises(ValueError, match="works in `fit` only"):
        callbacks.on_train_begin()


# === Killed processes ===


@pytest.mark.any_backend
def test_killed_processes(tmp_path):
    """The command that kills trainings by SIGKILL, also while they write a checkpoint."""
    command = [sys.executable, "-m", "benchmarks.kill_and_resume", "--runs", "3"]
    command += ["--kills", "1", "--seed", "3"]
    command += ["--moments", "step", "write", "--output", str(tmp_path / "runs.json")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    found = json.loads((tmp_path / "runs.json").read_text())["runs"]
    assert len(found) == 3
    for run in found:
        assert (run["different"], len(run["kills"])) == ([], 1)
        assert run["values"] > 20
    assert {kill["moment"][0] for run in found for kill in run["kills"]} == {"step", "write"}
