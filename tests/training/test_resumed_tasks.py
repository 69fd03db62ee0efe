"""`ExactResume` reads the data of tasks as their `fit` does."""

import functools

import keras
import numpy as np
import pytest

from keras_diet.models import DietBertTextClassifier
from keras_diet.training import ExactResume
from tests.models import test_token_classification as words
from tests.models.tasks import tiny_task
from tests.models.tiny import TEXTS, random_inputs, tiny_backbone

pytestmark = pytest.mark.any_backend
INPUTS = random_inputs(np.random.default_rng(3), batch_size=5, length=7)


def make_named():
    model = DietBertTextClassifier(tiny_backbone(num_layers=1), class_names=["a", "b", "c"])
    # XLA would take longer than the steps.
    model.compile(jit_compile=False)
    return model


def make_frozen():
    """Its losses depend on the masks of texts alone."""
    model = tiny_task("masked_lm")
    model.compile(keras.optimizers.SGD(0.0))
    return model


class Endless(keras.utils.PyDataset):
    """Batches of two texts without an end."""

    num_batches = None

    def __getitem__(self, index):
        return [TEXTS[index % 5], TEXTS[(2 * index) % 5]], [index % 2, 1]


BY_NAME = {"class_weight": {"b": 5.0, "c": 0.25}}
SENTENCES = [np.array(each) for each in words.SENTENCES]
# A model, its data, and options of `fit`.
CASES = {
    "names of classes": (make_named, (INPUTS, list("babca")), BY_NAME),
    "masks": (make_frozen, (TEXTS,), {"validation_data": (TEXTS, None), "epochs": 2}),
    "endless validation": (
        lambda: tiny_task("classifier"),
        (TEXTS, [0, 1, 0, 1, 1]),
        {"validation_data": Endless(), "validation_steps": 3},
    ),
    "sentences in arrays": (words.tiny, (SENTENCES, words.LABELS), {"validation_split": 0.5}),
    # Keras on TensorFlow fails without the last class.
    "weights of some classes": pytest.param(
        *(make_named, (INPUTS, list("bacca")), {"class_weight": {"a": 5.0}}),
        marks=pytest.mark.any_backend("tensorflow"),
    ),
}


@pytest.mark.parametrize("make, data, options", CASES.values(), ids=list(CASES))
def test_losses_are_those_of_fit(tmp_path, make, data, options):
    found = []
    for resumes in (False, True):
        keras.utils.set_random_seed(8)
        model = make()
        fit = functools.partial(ExactResume(tmp_path, 2).fit, model) if resumes else model.fit
        history = fit(*data, batch_size=2, shuffle=False, verbose=0, **options).history
        found.append(history.get("val_loss", history["loss"]))
    assert found[1] == pytest.approx(found[0], rel=1e-5)


@pytest.mark.any_backend("tensorflow")
def test_a_refused_training_does_not_change_the_model(tmp_path):
    labels = np.arange(5) % 3
    resume = ExactResume(tmp_path, 2)
    resume.fit(make_named(), INPUTS, labels, batch_size=2, verbose=0)
    model = make_named()
    before = model.get_weights()
    with pytest.raises(ValueError, match=r"batch_size=3 \(the checkpoint has 2\)"):
        resume.fit(model, INPUTS, labels, batch_size=3, verbose=0)
    for weight, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)
