"""`ExactResume`: an interrupted training has the results of one that was not interrupted."""

import functools
import random
from pathlib import Path

import grain
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_diet.data.for_keras import Steps
from keras_diet.data.sources import source_of
from keras_diet.training import ExactResume
from tests.helpers import once
from tests.models.tasks import tiny_task
from tests.models.tiny import TEXTS, random_inputs
from tests.training.resumed import (
    EPOCHS,
    EXAMPLES,
    STEPS,
    Noisy,
    NoisyEpochs,
    assert_continues,
    assert_same,
    before,
    crash,
    data_of,
    grain_batches,
    make_arrays,
    make_model,
    result,
    steps_of,
    train,
)

JIT = False if keras.config.backend() == "tensorflow" else "auto"

# === The same results ===


@pytest.mark.parametrize(
    "data",
    [
        "shuffled arrays",
        *once("py_dataset", "arrays", "epoch_dataset", "grain", "endless grain"),
        *once("grain iterator", "grain iterator in steps", "grain loader"),
    ],
)
def test_a_crashed_training_continues_bitwise(tmp_path, data):
    """Within the first epoch, and within a later one after a second crash."""
    options = {"data": data}
    if data == "shuffled arrays":
        options["validation_data"] = make_arrays()
    losses = assert_continues(functools.partial(train, **options), tmp_path, 4, 10)["loss"]
    assert len(np.unique(losses)) == EPOCHS


@pytest.mark.any_backend
@settings(deadline=None, derandomize=True, max_examples=6)
@given(step=st.integers(0, EPOCHS * STEPS - 1), save_every=st.integers(1, 13))
def test_a_crash_before_any_step(tmp_path_factory, uninterrupted, step, save_every):
    folder = tmp_path_factory.mktemp("crashed")
    assert train(folder, step, save_every=save_every) is None
    saved = [total for total in range(1, step + 1) if total % save_every == 0]
    assert steps_of(folder) == saved[-2:]
    assert_same(result(*train(folder, save_every=save_every)), uninterrupted)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "data, step",
    [("arrays", 5), ("grain iterator in steps", 10), ("grain iterator in steps", 15)],
)
def test_a_checkpoint_at_the_end_of_an_epoch(tmp_path, data, step):
    """A pass over the data ends with the second epoch."""
    x, y = make_arrays()
    options = {"x": x[:50], "y": y[:50]}
    if data != "arrays":
        options = {"x": grain_batches()[:50].batch(5).to_iter_dataset(grain.ReadOptions(1, 2))}
    options |= {"data": data, "steps_per_epoch": 5, "save_every": 5, "epochs": 4}
    assert_continues(functools.partial(train, **options), tmp_path, step + 2)


@pytest.mark.skipif(keras.config.backend() == "torch", reason="Keras refuses it on PyTorch")
def test_several_steps_in_one_execution(tmp_path):
    """7 batches in an epoch, which ends within a pass. The last execution has one step."""

    def run(folder, crash_after=None):
        model = make_model()
        model.compile(keras.optimizers.Adam(0.01), "mse", steps_per_execution=2, jit_compile=JIT)
        return train(folder, crash_after, model, data="grain iterator in steps")

    assert_continues(run, tmp_path, 6)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "options",
    [
        {"sample_weight": np.linspace(0, 2, 53), "validation_split": 0.3},
        {"class_weight": {0: 0.5, 2: 3.0}, "validation_data": make_arrays(), "validation_freq": 2},
        {"initial_epoch": 1, "validation_steps": 2}
        | {"validation_data": make_arrays(), "validation_batch_size": 3},
    ],
)
def test_arguments_of_fit_mean_what_they_mean_in_keras(tmp_path, options):
    """Keras alone has bitwise the same results. Only the order of shuffled data is another one."""
    options = {**data_of("arrays"), "epochs": EPOCHS, "verbose": 0, **options}
    model = make_model()
    expected = result(model, model.fit(**options))
    model = make_model()
    assert_same(result(model, ExactResume(tmp_path, 3).fit(model, **options)), expected)


X, Y = make_arrays()
ARRAYS = [X, np.arange(EXAMPLES)], [Y, Y[:, :1]]
# A list of arrays is several inputs, a list of numbers is one, which Keras does not take.
LISTS = [X, list(range(EXAMPLES))], ARRAYS[1]


class Batches(keras.utils.PyDataset):
    num_batches = 3

    def __getitem__(self, index):
        rows = slice(11 * index, 11 * index + 11)
        return [[part[rows] for part in parts] for parts in ARRAYS]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "data, of_keras",
    [(LISTS, ARRAYS), ((Batches(),), (Batches(),))],
    ids=["arrays", "batches"],
)
def test_lists_of_inputs_and_outputs(tmp_path, data, of_keras):
    """Each array of a list is an input or an output, also if their shapes differ."""
    inputs = [keras.Input((7,)), keras.Input(())]
    outputs = [keras.layers.Dense(3)(inputs[0]), keras.layers.Dense(1)(inputs[1][:, None])]
    model = keras.Model(inputs, outputs)
    weights = model.get_weights()
    results = []
    resume = functools.partial(ExactResume(tmp_path, 2).fit, model)
    for fit, columns in ((model.fit, of_keras), (resume, data)):
        model.set_weights(weights)
        model.compile(keras.optimizers.SGD(1e-4), ["mse", "mae"])
        history = fit(*columns, epochs=2, shuffle=False, verbose=0)
        results.append(result(model, history))
    assert_same(*results)


# === Models, optimizers, metrics and random numbers ===


class UnseededNoise(keras.layers.Layer):
    """Draws from the generator that all of Keras shares, and from PyTorch's."""

    def call(self, x):
        if keras.config.backend() == "torch":
            import torch

            x = x + torch.randn(3)
        return x + keras.random.normal(keras.ops.shape(x))


@pytest.mark.skipif(keras.config.backend() == "jax", reason="Keras refuses such draws on JAX")
def test_random_generators_continue(tmp_path):
    """Those of Python and NumPy draw two numbers, and keep the second one.

    Iterators of PyTorch draw too, one before each epoch and one in each validation.
    """

    def run(folder, crash_after=None):
        keras.utils.set_random_seed(5)
        model = keras.Sequential([keras.Input((7,)), keras.layers.Dense(3), UnseededNoise()])
        model.compile("sgd", "mse", jit_compile=JIT)
        bias = model.layers[0].bias

        def add_noise(batch, logs=None):
            bias.assign_add(0 * bias + random.gauss(0, 1) + np.random.normal())

        noise = keras.callbacks.LambdaCallback(on_train_batch_begin=add_noise)
        # Code of TensorFlow may draw from them in between.
        callbacks = [noise] if keras.config.backend() == "torch" else []
        options = {"callbacks": callbacks, "validation_data": make_arrays()}
        return train(folder, crash_after, model, **options)

    # Checkpoints behind an odd number of draws, and behind an even one in the second epoch.
    assert_continues(run, tmp_path, 4, 10)


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


def make_two_optimizers(rate=0.02):
    model = make_model(model_class=TwoOptimizers)
    model.optimizer_of_last = keras.optimizers.Adam(rate)
    model.optimizer_of_last.build(model.layers[-1].trainable_variables)
    return model


ADAM = keras.optimizers.Adam
SPECIAL = {
    "bfloat16": lambda: make_model(dtype="bfloat16"),
    "ema": lambda: make_model(optimizer=ADAM(0.01, use_ema=True, ema_momentum=0.7)),
    "loss scale": lambda: make_model(optimizer=keras.optimizers.LossScaleOptimizer(ADAM(0.01))),
    "accumulation": lambda: make_model(optimizer=ADAM(0.01, gradient_accumulation_steps=4)),
    "two optimizers": make_two_optimizers,
    "f1": lambda: make_model(metrics=[keras.metrics.F1Score(threshold=0.1)]),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("kind", SPECIAL)
def test_special_models_continue(tmp_path, kind):
    """With `use_ema`, `fit` gives the model averaged weights at its end only."""

    def run(folder, crash_after=None):
        return train(folder, crash_after, SPECIAL[kind]())

    expected = assert_continues(run, tmp_path, STEPS + 2)
    assert kind != "f1" or expected["f1_score"].shape == (EPOCHS, 3)


@pytest.mark.any_backend("tensorflow")
def test_a_model_that_its_first_step_builds(tmp_path):
    """On TensorFlow, neither layers nor metrics nor the optimizer have variables before it."""

    def run(folder, crash_after=None):
        keras.utils.set_random_seed(5)
        model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(3)])
        optimizer = keras.optimizers.Adam(0.01)
        wrapper = keras.optimizers.LossScaleOptimizer(optimizer)
        model.compile(wrapper, "mse", metrics=["mae"], jit_compile=False)
        model.optimizer_of_all = optimizer
        return train(folder, crash_after, model)

    assert_continues(run, tmp_path, 7)


class Sizes(keras.layers.Layer):
    """Records the sizes of batches that a compiled program knows."""

    found = ()

    def call(self, x):
        self.found = tuple(x.shape)
        return x


@pytest.mark.any_backend("tensorflow")
@pytest.mark.parametrize(
    ("data", "examples", "size"),
    [("arrays", 53, None), ("arrays", 50, 5), ("grain", 50, 5)],
)
def test_programs_know_the_size_of_batches_if_all_are_equal(tmp_path, data, examples, size):
    """A TPU needs it."""
    x, y = make_arrays()
    options = {"x": x[:examples], "y": y[:examples], "batch_size": 5}
    if data == "grain":
        options = {"x": grain_batches()[:examples].batch(5)}
    sizes = Sizes()
    model = keras.Sequential([keras.Input((7,)), sizes, keras.layers.Dense(3)])
    model.compile("sgd", "mse", jit_compile=False)
    ExactResume(tmp_path, 3).fit(model, **options, verbose=0)
    assert sizes.found == (size, 7)


# === Data ===


@pytest.mark.any_backend
def test_a_task_makes_the_batches_of_texts(tmp_path):
    """Each epoch has new masks. Validation has the same masks in each epoch."""

    def run(folder, crash_after=None, rate=0.1, shuffle=True):
        keras.utils.set_random_seed(5)
        model = tiny_task("masked_lm")
        model.compile(keras.optimizers.Adam(rate))
        texts = {"x": 7 * TEXTS, "y": None, "shuffle": shuffle, "validation_split": 0.3}
        return train(folder, crash_after, model, **texts)

    expected = assert_continues(run, tmp_path, 7)
    assert len(np.unique(expected["val_loss"])) == EPOCHS
    losses = run(tmp_path / "frozen", rate=0.0, shuffle=False)[1].history
    assert [len(np.unique(losses[name])) for name in ("loss", "val_loss")] == [EPOCHS, 1]


@pytest.mark.any_backend
def test_without_a_seed_the_training_continues_too(tmp_path, monkeypatch):
    """The order of the data comes from the checkpoint, and all random states."""
    monkeypatch.setattr(keras.utils, "set_random_seed", lambda seed: None)
    orders = []

    class Recorder(Noisy):
        def __getitem__(self, index):
            orders.append(index)
            return super().__getitem__(index)

    assert train(tmp_path, 5, data="py_dataset", x=Recorder(*make_arrays())) is None
    seen = orders[:]
    del orders[:]
    train(tmp_path, data="py_dataset", x=Recorder(*make_arrays()), epochs=1)
    # Before the first step, three batches are compared, and one builds metrics.
    order = seen[4:7] + orders[-8:]
    assert sorted(order) == list(range(STEPS))
    assert order != list(range(STEPS))


@pytest.mark.any_backend
def test_the_seeds_of_datasets(tmp_path):
    """The one that training data drew is in the checkpoint. One that was passed must be equal."""
    x, y = make_arrays()
    run = functools.partial(train, data="epoch_dataset")
    data, other, valid = (NoisyEpochs(x, y) for _ in range(3))
    assert run(tmp_path / "drawn", 5, x=data) is None
    assert len({each.seed for each in (data, other, valid)}) == 3
    run(tmp_path / "drawn", x=other, validation_data=valid)
    assert data.seed == other.seed == valid.seed
    assert run(tmp_path / "passed", 5, x=NoisyEpochs(x, y, seed=3)) is None
    with pytest.raises(ValueError, match=r"seed of the data=4 \(the checkpoint has 3\)"):
        run(tmp_path / "passed", x=NoisyEpochs(x, y, seed=4))


@pytest.mark.any_backend
def test_what_a_dataset_draws_depends_on_seed_epoch_and_index():
    """On nothing that was drawn before, and other draws do not depend on it."""
    import torch

    def draw():
        return [random.random(), np.random.normal(), torch.rand(()).item()]

    class Draws(keras.utils.PyDataset):
        num_batches = 3

        def __getitem__(self, index):
            return draw()

    def drawn(seed, epoch, index):
        steps = Steps(source_of(Draws(), seed=seed))
        steps.epoch = epoch
        return steps[index]

    places = [(3, 0, 1), (4, 0, 1), (3, 1, 1), (3, 0, 2), (3, 2, 0), (3, 0, 0), (0, 3, 1)]
    found = [drawn(*place) for place in places]
    for numbers in zip(*found, strict=True):
        assert len(set(numbers)) == len(places), "two batches have the same random numbers"
    keras.utils.set_random_seed(8)
    expected = [draw(), draw()]
    keras.utils.set_random_seed(8)
    first = draw()
    assert [drawn(*place) for place in places] == found
    assert [first, draw()] == expected


@pytest.mark.any_backend
def test_tensors_that_record_gradients(tmp_path, uninterrupted):
    import torch

    x, y = (torch.tensor(array, requires_grad=True) for array in make_arrays())
    assert_same(result(*train(tmp_path, x=x, y=y)), uninterrupted)


# === Other callbacks, and the end of a training ===


@pytest.mark.any_backend
def test_other_callbacks_see_one_training(tmp_path):
    assert train(tmp_path, STEPS + 5) is None
    seen = []
    recorder = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: seen.append("begin"),
        on_epoch_begin=lambda epoch, logs: seen.append(f"epoch {epoch}"),
        on_train_batch_end=lambda batch, logs: seen.append(batch),
        on_train_end=lambda logs: seen.append("end"),
    )
    train(tmp_path, callbacks=[recorder])
    numbers = list(range(STEPS))
    assert recorder.params["steps"] == STEPS
    assert seen == ["begin", "epoch 1", *numbers[4:], "epoch 2", *numbers, "end"]


@pytest.mark.any_backend
@pytest.mark.parametrize("step", [STEPS, STEPS + 4])
def test_a_callback_that_changes_the_rate(tmp_path, step):
    """Within an epoch, and at its start: the callback multiplies the rate of the epoch before."""

    def run(folder, crash_after=None):
        callbacks = [keras.callbacks.LearningRateScheduler(lambda _, rate: rate / 3)]
        return train(folder, crash_after, callbacks=callbacks, save_every=1)

    expected = assert_continues(run, tmp_path, step)
    assert expected["learning_rate"][-1] == pytest.approx(0.01 / 27)


@pytest.mark.any_backend
@pytest.mark.parametrize("epochs", [2, 3])
def test_a_finished_training_is_not_trained_again(tmp_path, uninterrupted, epochs):
    train(tmp_path)
    with pytest.warns(UserWarning, match=rf"{tmp_path} holds a training that has finished its"):
        found = train(tmp_path, epochs=epochs, callbacks=[before(0, crash)])
    assert_same(result(*found), uninterrupted)


@pytest.mark.any_backend
def test_more_epochs_continue_a_finished_training(tmp_path, uninterrupted):
    model, _ = train(tmp_path, epochs=2)
    # Also in the same process, with the same model.
    found = train(tmp_path, epochs=3, model=model)
    assert_same(result(*found), uninterrupted)


@pytest.mark.any_backend
@pytest.mark.parametrize("data, steps", [("arrays", 17), ("grain iterator in steps", 13)])
def test_a_training_that_was_stopped_early_is_finished(tmp_path, data, steps):
    """Within the second epoch."""

    def run(folder, crash_after=None):
        model = make_model()

        def stop(batch, logs=None):
            model.stop_training = int(model.optimizer.iterations) == steps

        callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=stop)]
        return train(folder, crash_after, model, data=data, callbacks=callbacks)

    expected = assert_continues(run, tmp_path, 10)
    assert expected["epochs"].tolist() == [0, 1]
    with pytest.warns(UserWarning, match="is not trained again"):
        found = run(tmp_path / "once", 0)
    assert_same(result(*found), expected)


@pytest.mark.any_backend
def test_callbacks_that_forget_the_best_epoch_give_a_warning(tmp_path, recwarn):
    def stopping():
        best = keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", "loss", save_best_only=True)
        every = keras.callbacks.ModelCheckpoint(tmp_path / "every.keras")
        return [keras.callbacks.EarlyStopping("loss", patience=9), best, every]

    assert train(tmp_path, STEPS + 4, callbacks=stopping()) is None
    assert not [each for each in recwarn if "begins again" in str(each.message)]
    with pytest.warns(UserWarning, match="but EarlyStopping, ModelCheckpoint begins again"):
        train(tmp_path, callbacks=stopping())


# === What is refused ===


def changed_at(row):
    _, y = make_arrays()
    y[row] += 1
    return y


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """Folders of crashed trainings."""
    folders = {data: tmp_path_factory.mktemp("crashed") for data in ("arrays", "grain", "two")}
    assert train(folders["arrays"], 5) is None
    assert train(folders["grain"], 5, data="grain") is None
    assert train(folders["two"], 5, make_two_optimizers()) is None
    return folders


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "data, options, message",
    [
        ("arrays", lambda: {"batch_size": 7}, r"batch_size=7 \(the checkpoint has 5\)"),
        ("arrays", lambda: {"model": make_model(6)}, r"seed=6 \(the checkpoint has 5\)"),
        (
            "arrays",
            lambda: {"x": make_arrays()[0][:51], "y": make_arrays()[1][:51]},
            r"size of the last batch=1 \(the checkpoint has 3\)",
        ),
        ("arrays", lambda: {"x": make_arrays()[0] + 1}, "with first batch=checksum"),
        ("arrays", lambda: {"y": changed_at(52)}, "with last batch=checksum"),
        ("arrays", lambda: {"class_weight": {0: 2.0}}, "class_weight=.* has None"),
        ("arrays", lambda: {"shuffle": True}, r"shuffle=True \(the checkpoint has False\)"),
        ("arrays", lambda: {"steps_per_epoch": 9}, r"steps in an epoch=9 \(the checkpoint has 11"),
        ("arrays", lambda: {"model": make_model(optimizer="sgd")}, "optimizer=SGD .*has Adam"),
        ("arrays", lambda: {"model": make_model(units=17)}, r"0 \(kernel\)=\(7, 17\).*\(7, 13\)"),
        ("grain", lambda: {"x": grain_batches()[:50].batch(5)}, r"batches=10 \(the che.* has 11\)"),
        ("grain", lambda: {"x": grain_batches()[:52].batch(5)}, r"size of the last batch=2 .* 3\)"),
        ("two", lambda: {"model": make_two_optimizers(0.04)}, r"of_last\.learning_rate=0.*has 0"),
    ],
)
def test_another_training_is_refused(crashed, data, options, message):
    kind = "grain" if data == "grain" else "arrays"
    with pytest.raises(ValueError, match=f"checkpoint of another training.*{message}"):
        train(crashed[data], data=kind, **options())


class Changing(Noisy):
    def on_epoch_end(self):
        self.x = self.x[::-1]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "options, message",
    [
        (lambda: {"x": iter([make_arrays()])}, "continue at any batch. Received: list_iterator"),
        (lambda: {"x": Changing(*make_arrays())}, "must be a .*EpochDataset.* Received: Changing"),
        (
            lambda: {"data": "arrays", "y": make_arrays()[1][:52]},
            "same number.*: 53 in `x`, 52 in `y`",
        ),
        (lambda: {"data": "endless grain", "steps_per_epoch": None}, "`steps_per_epoch` must be a"),
        (lambda: {"y": make_arrays()[1]}, "`y` must be `None` if `x` is a dataset.*MapDataset"),
        (lambda: {"batch_size": 5}, "`batch_size` must be `None` if `x` is a dataset"),
    ],
)
def test_data_that_cannot_resume_is_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        train(tmp_path, **{"data": "grain", **options()})


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["save_every", "keep"])
def test_bad_arguments(tmp_path, name):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer.*=0"):
        ExactResume(**{"folder": tmp_path, "save_every": 3, name: 0})
    with pytest.raises(FileExistsError):
        train(Path(__file__))


@pytest.mark.any_backend
@pytest.mark.parametrize("part", ["training", "validation"])
def test_token_ids_are_checked(tmp_path, part):
    model = tiny_task("classifier", with_preprocessor=False)
    inputs = random_inputs(np.random.default_rng(3), batch_size=5, length=7)
    wrong = {**inputs, "token_ids": inputs["token_ids"] + 31}
    good, bad = (inputs, np.arange(5)), (wrong, np.arange(5))
    x, y = bad if part == "training" else good
    with pytest.raises(ValueError, match=r"`x\['token_ids'\]` must hold integers in \[0,"):
        ExactResume(tmp_path, 1).fit(model, x, y, validation_data=bad, verbose=0)
    with pytest.raises(ValueError, match="sparse loss must be integers in"):
        ExactResume(tmp_path, 1).fit(model, inputs, np.arange(5) + 3, verbose=0)
