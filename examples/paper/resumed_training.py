"""The trainings that `kill_and_resume.py` kills. Each runs in a separate process."""

import io
import os
import signal

import keras
import numpy as np

from keras_diet import models, pretraining
from keras_diet.training import ExactResume, TokenBatches

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LENGTH, EPOCHS, SAVE_EVERY = 13, 3, 3
SAVEZ = np.savez


def train_on_texts(resume, callbacks):
    """Texts and labels in lists, in a new order in each epoch, with masks of the preprocessor."""
    rng = np.random.default_rng(7)
    texts = [" ".join(rng.choice(WORDS, rng.integers(3, 9))) for _ in range(37)]
    tokenizer = models.DietBertTokenizer(SPECIAL + WORDS)
    preprocessor = models.DietBertMaskedLMPreprocessor(
        tokenizer, sequence_length=LENGTH, mask_selection_length=3, mask_selection_rate=0.3
    )
    masked_lm = make_masked_lm(preprocessor)
    options = {"epochs": EPOCHS, "callbacks": callbacks, "verbose": 0}
    history = resume.fit(masked_lm, texts, batch_size=5, validation_split=0.2, **options)
    return masked_lm, history


def train_on_grain(resume, callbacks):
    """An endless Grain dataset. Some checkpoints are at the end of an epoch."""
    rng = np.random.default_rng(7)
    tokenizer = models.DietBertTokenizer(SPECIAL + WORDS)
    token_ids = rng.integers(len(SPECIAL), len(SPECIAL) + len(WORDS), (31, LENGTH))
    dataset = pretraining.masked_lm_dataset(token_ids, tokenizer, 5, repeat=True, seed=3)
    masked_lm = make_masked_lm()
    options = {"epochs": EPOCHS, "callbacks": callbacks, "verbose": 0}
    history = resume.fit(masked_lm, dataset, steps_per_epoch=6, **options)
    return masked_lm, history


def train_on_batches(resume, callbacks):
    """An `EpochDataset` with new batches in each epoch, and a model that is not of this library."""
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(41, 7)).astype("float32"), rng.normal(size=(41, 3)).astype("float32")
    batches = TokenBatches(
        (x, y), rng.integers(1, 9, 41), (4, 8), tokens_per_batch=32, seed=3, preprocessor=stack
    )
    model = keras.Sequential(
        [
            keras.Input((7,)),
            keras.layers.GaussianNoise(0.2),
            keras.layers.Dense(11, activation="relu"),
            keras.layers.Dropout(0.3),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(3),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    history = resume.fit(model, batches, epochs=EPOCHS, callbacks=callbacks, verbose=0)
    return model, history


def stack(*columns):
    return tuple(map(np.stack, columns))


def make_masked_lm(preprocessor=None):
    backbone = models.DietBertBackbone(
        vocabulary_size=len(SPECIAL) + len(WORDS),
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        dropout=0.2,
        max_sequence_length=LENGTH,
    )
    backbone.pooled_dense.trainable = False
    masked_lm = models.DietBertMaskedLM(backbone, preprocessor)
    masked_lm.compile(optimizer=keras.optimizers.AdamW(0.01))
    return masked_lm


TRAININGS = {"texts": train_on_texts, "grain": train_on_grain, "batches": train_on_batches}


def script(data, folder, moment, started):
    """Train in a process, which kills itself at `moment`, and write the results."""
    keras.utils.set_random_seed(5)
    kind, value = moment
    if kind == "write":
        np.savez = killed_while_writing(value, np.savez)
    callbacks = [Started(started, value if kind == "step" else None)]
    resume = ExactResume(folder / "checkpoints", SAVE_EVERY)
    model, history = TRAININGS[data](resume, callbacks)
    variables = [*model.variables, *model.optimizer.variables]
    values = {f"variable {i}": keras.ops.convert_to_numpy(v) for i, v in enumerate(variables)}
    logs = {f"history {name}": np.array(each) for name, each in history.history.items()}
    SAVEZ(folder / "result.npz", epochs=np.array(history.epoch), **values, **logs)


class Started(keras.callbacks.Callback):
    """Tell the parent process that steps begin, and kill this process before one of them."""

    def __init__(self, started, steps):
        super().__init__()
        self.started, self.steps = started, steps

    def on_train_batch_begin(self, batch, logs=None):
        self.started.set()
        if self.steps == 0:
            kill_this_process()
        self.steps = None if self.steps is None else self.steps - 1


def killed_while_writing(value, savez):
    """Return a `savez` that kills the process within a file, after a fraction of its bytes."""
    files, fraction = value

    def write(file, **arrays):
        nonlocal files
        if files:
            files -= 1
            return savez(file, **arrays)
        buffer = io.BytesIO()
        savez(buffer, **arrays)
        file.write(buffer.getvalue()[: int(fraction * len(buffer.getvalue()))])
        file.flush()
        kill_this_process()

    return write


def kill_this_process():
    os.kill(os.getpid(), signal.SIGKILL)
