"""A callback with which an interrupted training continues as if nothing had happened."""

import contextlib
import json
import os
import sys
import warnings
from typing import Any

import keras
import numpy as np

from keras_diet import _backend, validation
from keras_diet._batch_seed import READING, batch_seed
from keras_diet._compat import global_seed
from keras_diet._keras_fit import (
    build_for_training,
    end_pass,
    epoch_iterator_of,
    random_seed,
    replace_data,
    set_first_epoch,
    start_within_epoch,
)
from keras_diet.training.checkpoint_folder import CheckpointFolder
from keras_diet.training.processes import Processes
from keras_diet.training.random_states import random_states, restore_random_states
from keras_diet.training.resume_data import source_of
from keras_diet.training.step_batches import StepBatches
from keras_diet.training.termination import Termination
from keras_diet.training.training_state import (
    facts_of_model,
    facts_of_optimizers,
    restore_values,
    values_of,
)

# Number of differences that an error names. Another model has many.
_SHOWN = 4


class ExactResume(keras.callbacks.Callback):
    """Save a training every few steps, and continue it when the same script starts again.

    The training continues with the next step after the last checkpoint, also within an epoch. Its
    weights and its history are bitwise those of a training that was never interrupted. A checkpoint
    holds the weights, the optimizers, the metrics, all random states, the history, and the position
    in the data. It is written to a file that is complete or absent.

    The data is an array, a list (with the models of this library), a `keras.utils.PyDataset`, or a
    Grain dataset. With `shuffle=True` the order of each epoch follows from a seed, which NumPy's
    generator draws when the training begins. A `PyDataset` that changes between epochs needs a
    method `start_at(epoch)`. Generators, `tf.data` and PyTorch's `DataLoader` are refused, because
    they do not tell where to continue.

    - On SIGTERM the callback saves after the current step, and raises `SystemExit`.
    - A damaged checkpoint is skipped in favour of the one before.
    - If a checkpoint cannot be written, the training warns and continues. Earlier ones remain.
    - A finished training is not trained again, and a warning says so. More `epochs` continue it.

    Other callbacks start from the beginning when a training continues. Put this callback last, so
    that it sees what they do.

    Args:
        folder: Path of the folder for checkpoints. Each training has its own.
        save_every: int. Number of steps between two checkpoints.
        keep: int. Number of checkpoints to keep. Defaults to `2`.

    Raises:
        ValueError: If an argument is out of range, or `folder` is not a path or is a file. `fit`
            raises it if the data cannot be resumed, and if the checkpoint belongs to another
            training. Then the message names the first differences, such as the batch size, a seed,
            or the number of examples. It also raises it if the model has another optimizer as an
            attribute, which is not built.

    Example:

    ```python
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    resume = keras_diet.training.ExactResume("checkpoints", save_every=2)
    history = model.fit(
        np.ones((12, 2)), np.ones((12, 1)), batch_size=4, epochs=2, callbacks=[resume], verbose=0
    )
    len(history.history["loss"])  # 2, also after an interruption
    ```
    """

    def __init__(self, folder: str | os.PathLike[str], save_every: int, keep: int = 2) -> None:
        super().__init__()
        self.folder = _checked_folder(folder)
        self.save_every = validation.positive_int("save_every", save_every)
        self.keep = validation.positive_int("keep", keep)
        self._checkpoints = CheckpointFolder(folder, self.keep)

    # === What `fit` calls ===

    def on_train_begin(self, logs: Any = None) -> None:
        """Read the newest checkpoint, and prepare `fit` to continue after it."""
        self._loop = epoch_iterator_of(sys._getframe(), "fit")
        if self._loop is None:
            raise ValueError(
                "`ExactResume` works in `fit` only, whose data it reads. Received: a call outside "
                "of `fit`. Pass it to `fit` as a callback."
            )
        self._processes = Processes(self.model)
        # It draws a number when it is made. Later, a thread that reads data could draw too.
        global_seed()
        self._batches = _batches_of(self._loop, seed=int(np.random.randint(2**31)))
        self._facts = {**self._facts_of_fit(), **self._batches.facts()}
        self._facts_of_model: dict[str, Any] = {}
        self._epoch, self._step, self._total, self._is_due = 0, 0, 0, False
        self._history: dict[str, Any] = {"epoch": [], "history": {}}
        self._finished_epochs = 0
        replace_data(self._loop, self._batches)
        self._checkpoint = self._read()
        self._has_resumed = self._checkpoint is not None
        if self._checkpoint is not None:
            self._continue()
        self._termination = Termination(self._loop)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note the number of the epoch."""
        self._epoch = epoch
        # Keras has read it. It must not hold for the next `fit` if this one ends with an error.
        set_first_epoch(self.model, None)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Undo what the start of an epoch changed if the training continues within the epoch."""
        if self._checkpoint is not None:
            self._restore()
            self._checkpoint = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count steps, and save if it is time."""
        steps = batch + 1 - self._step
        self._is_due |= (self._total + steps) // self.save_every > self._total // self.save_every
        self._step, self._total = batch + 1, self._total + steps
        pass_ended = self._batches.advance(steps)
        # Keras cannot continue an epoch that has no step left, so its last step is saved later.
        # With `steps_per_execution`, an epoch may have more steps than `steps_per_epoch`.
        num_steps = self._loop.num_batches
        if not pass_ended and (num_steps is None or self._step < num_steps):
            self._save_if_due()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Record the history, and save if it is time."""
        self._epoch, self._step = epoch + 1, 0
        if not self._batches.index:
            end_pass(self._loop)
        self._history["epoch"].append(epoch)
        for name, value in (logs or {}).items():
            self._history["history"].setdefault(name, []).append(value)
        self._save_if_due()

    def on_train_end(self, logs: Any = None) -> None:
        """Save the finished training."""
        must_stop = self._processes.any(self._termination.requested)
        self._termination.end()
        set_first_epoch(self.model, None)
        if self._has_resumed:
            self.model.history.epoch = self._history["epoch"]
            self.model.history.history = self._history["history"]
        if self._finished_epochs < self.params["epochs"]:
            self._finished_epochs = self.params["epochs"]
            self._save()
        if must_stop:
            self._termination.exit()

    def on_test_begin(self, logs: Any = None) -> None:
        """Let a validation draw the same numbers each time, for example to mask tokens."""
        loop = epoch_iterator_of(sys._getframe(), "evaluate")
        if loop is None or not hasattr(loop.data_adapter, "preprocess"):
            return
        # Validation data that cannot resume is read as it is.
        with contextlib.suppress(ValueError):
            replace_data(loop, _batches_of(loop, self._batches.seed))

    # === Saving ===

    def _save_if_due(self):
        must_stop = self._processes.any(self._termination.requested)
        if self._is_due or must_stop:
            self._save()
            self._is_due = False
        if must_stop:
            self._termination.exit()

    def _save(self):
        shared, own = values_of(self.model)
        everyone = self._processes.gather((own, self._state()))
        if everyone is None:
            return
        arrays = {
            f"process {i} {name}": own[name] for i, (own, _) in enumerate(everyone) for name in own
        }
        states = [state for _, state in everyone]
        try:
            self._checkpoints.write(self._total, states, {**shared, **arrays})
        except OSError as error:
            warnings.warn(
                f"`ExactResume` could not save step {self._total} in {self.folder}: {error}. The "
                "training continues. Earlier checkpoints remain.",
                stacklevel=2,
            )

    def _state(self):
        """Return everything but the variables."""
        if not self._facts_of_model:
            self._facts_of_model = facts_of_model(self.model)
        # A thread that reads data changes the random states for a moment, and counts batches.
        with READING:
            random, position = random_states(), self._batches.position()
        return {
            "facts": {**self._facts, **self._facts_of_model},
            "epoch": self._epoch,
            "step": self._step,
            "total": self._total,
            "finished_epochs": self._finished_epochs,
            "history": self._history,
            "data": position,
            "random": random,
        }

    # === Continuing ===

    def _facts_of_fit(self):
        return {
            "backend": keras.config.backend(),
            "device": _backend.platform(),
            "seed": random_seed(),
            "steps_per_epoch": self._loop.steps_per_epoch,
            "steps_per_execution": self._loop.steps_per_execution,
            "number of processes": self._processes.count,
            "devices": self._processes.devices,
            **facts_of_optimizers(self.model),
        }

    def _read(self):
        """Return the newest checkpoint, or `None`. All processes must find the same."""
        # The first process may still write the last checkpoint of an earlier call of `fit`.
        self._processes.wait()
        checkpoint = self._checkpoints.read()
        steps = self._processes.all(checkpoint and checkpoint[0][0]["total"])
        if len(set(steps)) > 1:
            raise ValueError(
                "`folder` must have the same files in all processes. Received: folder="
                f"{str(self.folder)!r}, whose last checkpoints are of the steps {steps} in the "
                "processes. Use a folder that all machines share."
            )
        return checkpoint

    def _continue(self):
        """Check that the checkpoint belongs to this training, and let `fit` begin after it."""
        states, _ = self._checkpoint
        state = states[min(self._processes.rank, len(states) - 1)]
        self._check(self._facts, state["facts"])
        self._batches.continue_at(state["data"])
        if keras.config.backend() == "tensorflow":
            build_for_training(self.model, self._batches.first())
        self._facts_of_model = facts_of_model(self.model)
        self._check(self._facts_of_model, state["facts"])
        self._epoch, self._step, self._total = state["epoch"], state["step"], state["total"]
        self._history, self._finished_epochs = state["history"], state["finished_epochs"]
        epochs = self.params["epochs"]
        is_finished = max(self._finished_epochs, self._epoch) >= epochs
        if is_finished:
            warnings.warn(
                f"{self.folder} holds a training that has finished its {epochs} epochs. It is not "
                "trained again. Use another folder for another training.",
                stacklevel=2,
            )
        else:
            start_within_epoch(self._loop, self._step, self._batches.index)
        # After an iterator is made, because on PyTorch it draws a number.
        self._restore()
        set_first_epoch(self.model, epochs if is_finished else self._epoch)
        if not self._step:
            # Other callbacks may change the model at the start of the epoch.
            self._checkpoint = None

    def _check(self, facts, saved):
        facts = json.loads(json.dumps(facts))
        changed = [
            f"{name}={value} (the checkpoint has {saved.get(name)})"
            for name, value in facts.items()
            if value != saved.get(name)
        ]
        if changed:
            differences = "; ".join(changed[:_SHOWN])
            raise ValueError(
                f"`folder` holds a checkpoint of another training. Received: folder="
                f"{str(self.folder)!r} with {differences}. Use the same values again, or another "
                "folder."
            )

    def _restore(self):
        """Give all variables and random generators the values of the checkpoint."""
        states, arrays = self._checkpoint
        prefix = f"process {self._processes.rank} "
        own = {name.removeprefix(prefix): arrays[name] for name in arrays if prefix in name}
        restore_values(self.model, {**arrays, **own})
        with READING:
            restore_random_states(states[self._processes.rank]["random"])


def _checked_folder(folder):
    is_path = isinstance(folder, (str, os.PathLike)) and str(folder)
    if not is_path or os.path.isfile(folder):
        raise ValueError(
            "`folder` must be the path of a folder, which need not exist. Received: "
            f"folder={folder!r}."
        )
    return folder


def _batches_of(loop, seed):
    adapter = loop.data_adapter
    # A source may read batches, whose random numbers must not depend on what was drawn before.
    with batch_seed((0,)):
        source = source_of(adapter)
    return StepBatches(source, getattr(adapter, "preprocess", None), seed)
