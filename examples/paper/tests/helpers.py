"""How tests run the experiments."""

import contextlib
import importlib
import sys
from pathlib import Path

import keras
import pytest

from keras_diet.models import DietBertTokenizer
from keras_diet.training import ExactResume
from tests.models.tiny import VOCABULARY, tiny_backbone

EXAMPLES = Path(__file__).parents[1]
# Text to pretrain with.
TEXT = "\n\n".join(
    f"The cat {i} sat on the old mat. It saw the dog run over the bridge number {i}.\n"
    "Then the dog and the cat went home, since the sun was low and the night was cold."
    for i in range(60)
)


@contextlib.contextmanager
def imported(name):
    """Import a script. Compiling takes longer than its few steps, but not on JAX."""
    with pytest.MonkeyPatch.context() as patch:
        eager = property(lambda trainer: True, lambda trainer, value: None)
        if keras.backend.backend() != "jax":
            patch.setattr(keras.Model, "run_eagerly", eager)
        yield importlib.import_module(f"examples.paper.{name}")


def fixture_of(script, module=None):
    """A fixture: a script, or a module that it imports."""

    @pytest.fixture(scope="module")
    def fixture():
        with imported(script):
            yield sys.modules[f"examples.paper.{module or script}"]

    return fixture


def save_preset(folder, tokenizer=None):
    """Save a tiny model without segments and a tokenizer as a preset, and return its path."""
    tokenizer = tokenizer or DietBertTokenizer(VOCABULARY, lowercase=True)
    sizes = {"vocabulary_size": tokenizer.vocabulary_size(), "num_layers": 1}
    tiny_backbone(**sizes, segment_encoding="none").save_to_preset(folder)
    tokenizer.save_to_preset(folder)
    return str(folder)


def add_to_fit(patch, callback):
    """Add a callback to each `ExactResume.fit`, after the callbacks of the script."""
    fit = ExactResume.fit

    def patched(*arguments, callbacks=(), **options):
        return fit(*arguments, callbacks=[*callbacks, callback], **options)

    patch.setattr(ExactResume, "fit", patched)


class Crash(keras.callbacks.Callback):
    """Stop a training before one of its steps.

    Args:
        step: The number of this step. `None` stops nothing.

    Attributes:
        begun: The numbers of all steps that began, also in earlier trainings.
    """

    def __init__(self, step):
        super().__init__()
        self.step, self.begun = step, []

    def on_train_batch_begin(self, batch, logs=None):
        self.begun.append(int(self.model.optimizer.iterations))
        if self.begun[-1] == self.step:
            raise KeyboardInterrupt


def squad_paragraph(context, *questions):
    """A paragraph in SQuAD's format, with questions `(id, question, texts)`."""
    return {
        "context": context,
        "qas": [
            {
                "id": name,
                "question": question,
                "answers": [{"text": t, "answer_start": context.index(t)} for t in texts],
                "is_impossible": not texts,
                "plausible_answers": [{"text": "the", "answer_start": 0}],
            }
            for name, question, texts in questions
        ],
    }
