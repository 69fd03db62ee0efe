"""An interrupted training continues as if nothing had happened."""

import contextlib
import os
import signal
import threading
import warnings
import zlib
from typing import Any, Self

import keras
import numpy as np

from keras_diet import _backend, validation
from keras_diet.data.columns import arrays, is_columns, split, tuple_of_inputs
from keras_diet.data.epoch_dataset import EpochDataset
from keras_diet.data.for_keras import Steps
from keras_diet.data.random_states import (
    random_states,
    restore_random_states,
    seed_of_script,
)
from keras_diet.data.sources import source_of
from keras_diet.training.checkpoint import (
    Arrays,
    CheckpointFolder,
    description_of,
    optimizer_settings,
    restore_values,
    values_of,
)
from keras_diet.training.trainers import Processes, whole_batches

# Number of differences that an error names. Another model has many.
_SHOWN = 4


class ExactResume:
    """Save a training every few steps, and continue it when the same script starts again.

    The training continues with the next step after the last checkpoint, also within an epoch. Its
    weights and its history are bitwise those of a training that was never interrupted. A checkpoint
    holds the weights, the optimizers, the metrics, all random states, the history, and the position
    in the data. It is written to a file that is complete or absent.

    The data is arrays, lists (texts too with the models of this library), a
    `keras.utils.PyDataset`, an `EpochDataset`, or a Grain dataset. With `shuffle=True` the order of
    each epoch follows from a seed, which NumPy's generator draws when the training begins.
    Generators, `tf.data` and PyTorch's `DataLoader` are refused, because they do not tell where to
    continue.

    - On SIGTERM, `fit` saves after the current step and raises `SystemExit`.
    - A damaged checkpoint is skipped in favour of the one before.
    - If a checkpoint cannot be written, the training warns and continues. Earlier ones remain.
    - Callbacks that compare epochs, such as `EarlyStopping`, begin again, and a warning says so.
    - A finished training is not trained again, and a warning says so. More `epochs` continue it.

    Args:
        folder: Path of the folder for checkpoints. Each training has its own.
        save_every: int. Number of steps between two checkpoints.
        keep: int. Number of checkpoints to keep. Defaults to `2`.

    Raises:
        ValueError: If `save_every` or `keep` is not a positive integer.

    Example:

    ```python
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    resume = keras_diet.training.ExactResume("checkpoints", save_every=2)
    history = resume.fit(
        model, np.ones((12, 2)), np.ones((12, 1)), batch_size=4, epochs=2, verbose=0
    )
    len(history.history["loss"])  # 2, also after an interruption
    ```
    """

    def __init__(self, folder: str | os.PathLike[str], save_every: int, keep: int = 2) -> None:
        self.folder = folder
        self.save_every = validation.positive_int("save_every", save_every)
        self.keep = validation.positive_int("keep", keep)

    def fit(
        self,
        model: keras.Model,
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        **options: Any,
    ) -> keras.callbacks.History:
        """Train a model, or continue its training.

        It calls `keras.Model.fit`, first for the rest of an interrupted epoch and then for the
        other epochs. A model with a method `batches`, as the models of this library have it,
        makes batches of texts with it.

        Args:
            model: A model that is compiled.
            x: Inputs, or a dataset of batches.
            y: Labels, or `None`.
            steps_per_epoch: int or `None`. `None` means a pass over the data. With a number, an
                epoch continues where the one before ended. If the data ends, it is read again.
            batch_size: As in `keras.Model.fit`, like `epochs`, `verbose`, `callbacks`,
                `validation_split`, `validation_data`, `shuffle`, `class_weight`, `sample_weight`
                and `initial_epoch`.
            **options: `validation_steps`, `validation_batch_size` and `validation_freq`, as in
                `keras.Model.fit`.

        Returns:
            The history of the whole training.

        Raises:
            ValueError: If the data cannot be resumed, or if the checkpoint belongs to another
                training. Then the message names the first differences, such as the batch size, a
                seed, or the number of batches.
            SystemExit: After SIGTERM, when a checkpoint is written.
        """
        is_ours = hasattr(model, "batches")
        if not is_ours and is_columns(x):
            x, y, sample_weight = arrays(tuple(map(tuple_of_inputs, (x, y, sample_weight))))
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = split((x, y, sample_weight), validation_split)
        if is_ours:
            class_weight = model.class_weight_of(class_weight, y)
        _check_can_resume(x)
        batches = model.batches if is_ours else source_of
        # Grain shuffles by itself.
        shuffles = bool(shuffle) and not _is_grain(x)
        data = batches(x, y, sample_weight, batch_size, shuffles, steps=steps_per_epoch)
        steps = Steps(data, steps_per_epoch)
        options["validation_batch_size"] = options.get("validation_batch_size") or batch_size
        with _Termination() as termination:
            checkpoints = CheckpointFolder(self.folder, self.keep)
            training = _Training(model, steps, checkpoints, self.save_every, termination)
            facts = {"shuffle": bool(shuffle), "class_weight": str(class_weight)}
            training.read(facts)
            options["class_weight"] = class_weight
            is_read_here = is_ours or isinstance(validation_data, EpochDataset)
            if validation_data is not None and is_read_here:
                validation_data = _validation_steps(model, validation_data, data, options)
            options["validation_data"] = validation_data
            # Steps of other models do not divide batches.
            with whole_batches() if is_ours else contextlib.nullcontext():
                return training.fit(callbacks, initial_epoch, epochs, verbose, **options)


def _validation_steps(model, data, of_training, options):
    """Return what Keras reads. Batches of texts are prepared, with the same masks each time."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    size = options["validation_batch_size"] if is_columns(x) else None
    steps = options.get("validation_steps")
    if not isinstance(x, EpochDataset):
        x = model.batches(x, y, sample_weight, size, training=False, steps=steps)
    if not x.has_own_seed:
        x.seed = of_training.seed
    return Steps(x, steps).for_keras()


def _check_can_resume(data):
    """Raise a `ValueError` unless the data can continue exactly at a batch."""
    if isinstance(data, EpochDataset) or is_columns(data) or _is_grain(data):
        return
    if not isinstance(data, keras.utils.PyDataset):
        raise ValueError(
            "`ExactResume` needs data that can continue at any batch. Received: "
            f"{type(data).__name__}, which does not tell where to continue. Pass arrays, lists, a "
            "`keras.utils.PyDataset`, or a Grain dataset. Grain shuffles with a seed."
        )
    hooks = ("on_epoch_begin", "on_epoch_end")
    if any(getattr(type(data), name) is not getattr(keras.utils.PyDataset, name) for name in hooks):
        raise ValueError(
            "A dataset that changes between epochs must be a `keras_diet.training.EpochDataset`, "
            f"so that `ExactResume` can read any epoch. Received: {type(data).__name__} with "
            "`on_epoch_begin` or `on_epoch_end`. Derive it from `EpochDataset`."
        )


def _compares(callback):
    """Return whether a callback compares epochs. Its state is not saved."""
    kinds = (keras.callbacks.EarlyStopping, keras.callbacks.ReduceLROnPlateau)
    is_checkpoint = isinstance(callback, keras.callbacks.ModelCheckpoint)
    return isinstance(callback, kinds) or (is_checkpoint and callback.save_best_only)


def _is_grain(data):
    return any(base.__module__.partition(".")[0] == "grain" for base in type(data).__mro__)


def _facts(data, examples):
    """Return what must be the same in the data when the training continues."""
    first, _, last = examples
    sizes = [
        next((len(leaf) for leaf in keras.tree.flatten(batch) if np.ndim(leaf)), None)
        for batch in (first, last)
    ]
    facts = {
        "number of batches": data.num_batches,
        "batch_size": sizes[0],
        "size of the last batch": sizes[1],
        "first batch": _checksum(first),
        "last batch": _checksum(last),
    }
    return facts | ({"seed of the data": data.seed} if data.has_own_seed else {})


def _checksum(batch):
    """Return a number that other data, another order or another seed would change."""
    value = 0
    for leaf in keras.tree.flatten(batch):
        value = zlib.crc32(np.ascontiguousarray(leaf), value)
    return f"checksum {value:08x}"


class _Training(keras.callbacks.CallbackList):
    """The callbacks of a training, which see one training although `fit` may be called twice.

    After the other callbacks have seen a step, it saves.

    Args:
        model: The model.
        steps: The steps of an epoch.
        checkpoints: The folder.
        save_every: int. Number of steps between two checkpoints.
        termination: Tells whether SIGTERM has come.
    """

    def __init__(
        self,
        model: keras.Model,
        steps: Steps,
        checkpoints: CheckpointFolder,
        save_every: int,
        termination: "_Termination",
    ) -> None:
        self._steps = steps
        self._checkpoints = checkpoints
        self._save_every = save_every
        self._termination = termination
        self._processes = Processes(model)
        self._model = model
        self._epoch, self._step, self._total, self._finished_epochs = 0, 0, 0, 0
        self._is_due, self._has_begun, self._is_part = False, False, False
        # The state and the values that the next step of `fit` begins with.
        self._start: tuple[dict[str, Any], Arrays] | None = None

    # === Continuing ===

    def read(self, facts: dict[str, Any]) -> None:
        """Read the newest checkpoint, and check that it belongs to this training.

        Args:
            facts: What must be the same when the training continues, beside what is found here.

        Raises:
            ValueError: If it does not, or if processes find other checkpoints.
        """
        # The first process may still write the last checkpoint of an earlier call.
        self._processes.all(None)
        checkpoint = self._checkpoints.read()
        found = self._processes.all(checkpoint and checkpoint[0][0]["total"])
        if len(set(found)) > 1:
            raise ValueError(
                "`folder` must have the same files in all processes. Received: folder="
                f"{str(self._checkpoints.folder)!r}, whose last checkpoints are of the steps "
                f"{found} in the processes. Use a folder that all machines share."
            )
        if checkpoint is not None:
            states, arrays = checkpoint
            rank = self._processes.rank
            state = states[min(rank, len(states) - 1)]
            prefix = f"process {rank} "
            own = {name.removeprefix(prefix): arrays[name] for name in arrays if prefix in name}
            self._start = (state, {**arrays, **own})
            data = self._steps.data
            if not data.has_own_seed:
                data.seed = state["data"]["seed"]
            data.set_state(state["data"]["state"])
        model = self._model
        self._facts = {
            "backend": keras.config.backend(),
            "device": _backend.platform(),
            "seed": seed_of_script(),
            "steps in an epoch": self._steps.num_steps,
            "steps_per_execution": model.steps_per_execution,
            "number of processes": self._processes.count,
            "devices": self._processes.devices,
            **optimizer_settings(model),
            **_facts(self._steps.data, self._steps.examples),
            **facts,
        }

    def _check_facts(self, saved, facts):
        changed = [
            f"{name}={value} (the checkpoint has {saved.get(name)})"
            for name, value in facts.items()
            if value != saved.get(name)
        ]
        if changed:
            raise ValueError(
                "`folder` holds a checkpoint of another training. Received: folder="
                f"{str(self._checkpoints.folder)!r} with {'; '.join(changed[:_SHOWN])}. Use the "
                "same values again, or another folder."
            )

    def _all_facts(self):
        # On TensorFlow, a model may have all its variables only after its first step.
        return {**self._facts, **description_of(self._model)}

    def fit(
        self, callbacks: Any, initial_epoch: int, epochs: int, verbose: Any, **options: Any
    ) -> keras.callbacks.History:
        """Train the rest of an interrupted epoch, and then the other epochs."""
        model = self._model
        if self._start is not None:
            state = self._start[0]
            self._epoch, self._step, self._total = state["epoch"], state["step"], state["total"]
            self._finished_epochs = state["finished_epochs"]
            initial_epoch = self._epoch
            if max(self._finished_epochs, self._epoch) >= epochs:
                warnings.warn(
                    f"{self._checkpoints.folder} holds a training that has finished its {epochs} "
                    "epochs. It is not trained again. Use another folder for another training.",
                    stacklevel=3,
                )
                initial_epoch, self._step = epochs, 0
            self._check_facts(state["facts"], self._facts)
            if keras.config.backend() == "tensorflow":
                # Its first step makes the variables. Their values are restored below.
                batch = self._steps.for_keras().take(1)
                weights = options["class_weight"]
                keras.Model.fit(model, batch, verbose=0, shuffle=False, class_weight=weights)
        super().__init__(
            callbacks,
            add_history=True,
            add_progbar=verbose != 0,
            model=model,
            verbose=verbose,
            epochs=epochs,
            steps=self._steps.num_steps,
        )
        self._recorded = model.history
        names = [type(each).__name__ for each in self.callbacks if _compares(each)]
        if names and self._total and initial_epoch < epochs:
            warnings.warn(
                f"The training continues, but {', '.join(names)} begins again and forgets the best "
                "value so far. `ModelCheckpoint` with `save_best_only=True` may replace a better "
                "file, unless you pass its value as `initial_value_threshold`.",
                stacklevel=3,
            )

        def train(initial_epoch, epochs):
            keras.Model.fit(
                model,
                self._steps.for_keras(),
                initial_epoch=initial_epoch,
                epochs=epochs,
                callbacks=self,
                verbose=verbose,
                shuffle=False,
                **options,
            )

        if self._step:
            self._steps.start, self._is_part = self._step, True
            train(initial_epoch, initial_epoch + 1)
            self._steps.start, self._is_part = 0, False
            initial_epoch += 1
        if not (self._start and model.stop_training):
            train(initial_epoch, epochs)
        self._finish(epochs)
        return self._recorded

    def _restore(self):
        state, values = self._start
        restore_values(self.model, values)
        restore_random_states(state["random"])

    # === What `fit` calls ===

    def on_train_begin(self, logs: Any = None) -> None:
        """Restore the values of the checkpoint, or of the end of the interrupted epoch."""
        if not self._has_begun:
            super().on_train_begin(logs)
        if self._start is not None:
            state, values = self._start
            if not self._has_begun:
                self._check_facts(state["facts"], self._all_facts())
                self._recorded.epoch = list(state["epochs"])
                self._recorded.history = {
                    name: values[f"history {name}"].tolist() for name in state["history"]
                }
            self._restore()
            if not state["step"]:
                self._start = None
        self._has_begun = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Choose the batches of the epoch."""
        self._epoch = self._steps.epoch = epoch
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Undo what the start of an epoch changed if the training continues within the epoch."""
        if self._start is not None:
            self._restore()
            self._start = None
        super().on_train_batch_begin(self._steps.start + batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count steps, and save if it is time."""
        super().on_train_batch_end(self._steps.start + batch, logs)
        # The last of several steps in one execution may have no batch.
        step = min(self._steps.start + batch + 1, self._steps.num_steps)
        total = self._total + step - self._step
        self._is_due |= total // self._save_every > self._total // self._save_every
        self._step, self._total = step, total
        # The last step of an epoch is saved after its validation.
        if step < self._steps.num_steps:
            self._save_if_due()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save if it is time."""
        super().on_epoch_end(epoch, logs)
        self._epoch, self._step = epoch + 1, 0
        self._save_if_due()
        if self._is_part:
            # The next call of `fit` begins with it. At its end, `fit` may change the weights.
            state, shared, own = self._values()
            self._start = (state, {**shared, **own})

    def on_train_end(self, logs: Any = None) -> None:
        """Keep the values of the last epoch for the end of the training."""
        self._logs = logs

    def _finish(self, epochs):
        super().on_train_end(self._logs)
        self._is_due = self._finished_epochs < epochs
        self._finished_epochs = max(self._finished_epochs, epochs)
        self._save_if_due()

    # === Saving ===

    def _save_if_due(self):
        # All processes stop at the same step.
        must_stop = True in self._processes.all(self._termination.requested)
        if self._is_due or must_stop:
            self._save()
            self._is_due = False
        if must_stop:
            # The exit status that shells report for SIGTERM.
            raise SystemExit(128 + signal.SIGTERM)

    def _save(self):
        state, shared, own = self._values()
        everyone = self._processes.all((own, state))
        if self._processes.rank > 0:
            return
        arrays = {
            f"process {i} {name}": own[name] for i, (own, _) in enumerate(everyone) for name in own
        }
        states = [state for _, state in everyone]
        try:
            self._checkpoints.write(self._total, states, {**shared, **arrays})
        except OSError as error:
            warnings.warn(
                f"`ExactResume` could not save step {self._total} in {self._checkpoints.folder}: "
                f"{error}. The training continues. Earlier checkpoints remain.",
                stacklevel=2,
            )

    def _values(self):
        """Return the state for JSON, and the arrays that all processes share and their own."""
        shared, own = values_of(self.model)
        data = self._steps.data
        _, index = self._steps.place(self._epoch, self._step)
        history = self._recorded.history
        for name, column in history.items():
            # Metrics such as the F1 score of each class are tensors.
            own[f"history {name}"] = np.array([keras.ops.convert_to_numpy(each) for each in column])
        state = {
            "facts": self._all_facts(),
            "epoch": self._epoch,
            "step": self._step,
            "total": self._total,
            "finished_epochs": self._finished_epochs,
            "epochs": list(self._recorded.epoch),
            "history": list(history),
            "data": {"seed": data.seed, "state": data.state(index)},
            "random": random_states(),
        }
        return state, shared, own


class _Termination:
    """Remembers SIGTERM while `fit` runs. Another one ends the process as usual."""

    def __init__(self) -> None:
        self.requested = False
        # Python allows this in the main thread only.
        self._is_main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Self:
        if self._is_main:
            self._previous = signal.signal(signal.SIGTERM, self._handle)
        return self

    def __exit__(self, *error: Any) -> None:
        if self._is_main:
            signal.signal(signal.SIGTERM, self._previous or signal.SIG_DFL)

    def _handle(self, number, frame):
        if self.requested:
            self.__exit__()
            signal.raise_signal(number)
        self.requested = True
