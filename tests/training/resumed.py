"""Trainings that crash and resume in this process, for the tests of `ExactResume`."""

import itertools

import grain
import keras
import numpy as np

from keras_diet.training import EpochDataset, ExactResume

EXAMPLES, BATCH_SIZE, EPOCHS = 53, 5, 3
STEPS = 11  # in an epoch


def before(step, function):
    """A callback that calls a function before a step."""
    steps = itertools.count()

    def call(batch, logs=None):
        if next(steps) == step:
            function()

    return keras.callbacks.LambdaCallback(on_train_batch_begin=call)


def crash():
    """Stop the training without `on_train_end`."""
    raise KeyboardInterrupt


class Noisy(keras.utils.PyDataset):
    """Batches with noise from NumPy's global generator."""

    def __init__(self, x, y, **kwargs):
        super().__init__(**kwargs)
        self.x, self.y = x, y

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        rows = slice(BATCH_SIZE * index, BATCH_SIZE * (index + 1))
        x = self.x[rows]
        return x + np.random.normal(size=x.shape).astype("float32"), self.y[rows]


class NoisyEpochs(EpochDataset):
    """Batches with other noise in each epoch."""

    num_batches = STEPS

    def __init__(self, x, y, **kwargs):
        super().__init__(**kwargs)
        self.x, self.y = x, y

    def batch(self, epoch, index):
        rows = slice(BATCH_SIZE * index, BATCH_SIZE * (index + 1))
        noise = self.generator(epoch, index).normal(size=self.x[rows].shape)
        return self.x[rows] + noise.astype("float32"), self.y[rows]


def make_arrays():
    rng = np.random.default_rng(17)
    shapes = (EXAMPLES, 7), (EXAMPLES, 3)
    return tuple(rng.normal(size=shape).astype("float32") for shape in shapes)


def grain_batches(seed=3):
    return grain.MapDataset.source(list(zip(*make_arrays(), strict=True))).seed(seed).shuffle()


def data_of(kind):
    """The arguments of `fit` for a kind of data."""
    x, y = make_arrays()
    batches = grain_batches().batch(BATCH_SIZE)
    reading = grain.ReadOptions(num_threads=2, prefetch_buffer_size=3)
    sampler = grain.samplers.IndexSampler(EXAMPLES, shuffle=True, seed=5, num_epochs=1)
    source = list(zip(x, y, strict=True))
    operations = [grain.transforms.Batch(BATCH_SIZE)]
    return {
        "arrays": {"x": x, "y": y, "batch_size": BATCH_SIZE, "shuffle": False},
        "shuffled arrays": {"x": x, "y": y.tolist(), "batch_size": BATCH_SIZE},
        "py_dataset": {"x": Noisy(x, y)},
        "epoch_dataset": {"x": NoisyEpochs(x, y)},
        "grain": {"x": batches},
        "endless grain": {"x": batches.repeat(), "steps_per_epoch": 7},
        "grain iterator": {"x": batches.to_iter_dataset(reading)},
        "grain iterator in steps": {"x": batches.to_iter_dataset(reading), "steps_per_epoch": 7},
        "grain loader": {
            "x": grain.DataLoader(data_source=source, sampler=sampler, operations=operations)
        },
    }[kind]


def make_model(seed=5, optimizer=None, units=13, outputs=3, model_class=keras.Sequential, **layer):
    """A model whose steps draw random numbers. It has a state beside its weights."""
    metrics = layer.pop("metrics", ["mae"])
    if seed is not None:
        keras.utils.set_random_seed(seed)
    model = model_class(
        [
            keras.Input((7,)),
            keras.layers.Dense(units, activation="relu", **layer),
            keras.layers.Dropout(0.3, **layer),
            keras.layers.BatchNormalization(**layer),
            keras.layers.Dense(outputs, **layer),
        ]
    )
    # XLA would take longer on TensorFlow than the steps. JAX always compiles.
    jit_compile = False if keras.config.backend() == "tensorflow" else "auto"
    optimizer = optimizer or keras.optimizers.Adam(0.01)
    model.compile(optimizer, "mse", metrics=metrics, jit_compile=jit_compile)
    return model


def train(folder, crash_after=None, model=None, data="arrays", callbacks=(), **options):
    """Train as a script would, and save every 3 steps.

    Returns:
        The model and its history, or `None` if the training crashed after some steps.
    """
    model = model or make_model()
    callbacks = [*callbacks, *([] if crash_after is None else [before(crash_after, crash)])]
    resume = ExactResume(folder, options.pop("save_every", 3))
    options = {**data_of(data), "epochs": EPOCHS, "verbose": 0, **options}
    try:
        return model, resume.fit(model, callbacks=callbacks, **options)
    except KeyboardInterrupt:
        return None


def steps_of(folder):
    """The steps of the checkpoints in a folder."""
    return [int(path.stem.removeprefix("step_")) for path in sorted(folder.glob("step_*.npz"))]


def result(model, history):
    """All values of a training as arrays."""
    variables = [*model.variables, *model.optimizer.variables]
    values = {f"variable {i}": keras.ops.convert_to_numpy(v) for i, v in enumerate(variables)}
    logs = {name: np.array(each, "float64") for name, each in history.history.items()}
    return {**values, **logs, "epochs": np.array(history.epoch)}


def assert_continues(run, folder, *crashes):
    """Assert that a training that crashes has the results of one that does not.

    Args:
        run: Function of a folder and the number of steps before a crash, which returns what `train`
            returns.
        folder: Path of an empty folder.
        *crashes: Number of steps before each crash.

    Returns:
        The results.
    """
    expected = result(*run(folder / "once"))
    for steps in crashes:
        assert run(folder / "crashed", steps) is None
    assert_same(result(*run(folder / "crashed")), expected)
    return expected


def assert_same(actual, expected):
    """Assert that two results are bitwise the same."""
    assert set(actual) == set(expected)
    different = [n for n in expected if not np.array_equal(actual[n], expected[n], equal_nan=True)]
    assert not different, f"not bitwise equal: {different}"
