"""`ExactResume` reads the data of tasks as their `fit` does."""

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


def losses(fit, *data, **options):
    history = fit(*data, batch_size=2, shuffle=False, verbose=0, **options).history
    return history.get("val_loss", history["loss"])


def resumed(folder, model):
    return lambda *data, **options: ExactResume(folder, 2).fit(model, *data, **options)


def make_named():
    keras.utils.set_random_seed(8)
    model = DietBertTextClassifier(tiny_backbone(num_layers=1), class_names=["a", "b", "c"])
    # XLA would take longer than the steps.
    model.compile(jit_compile=False)
    return model


def test_names_of_classes_have_weights(tmp_path):
    labels = ["b", "a", "b", "c", "a"]
    weights = {"b": 5.0, "c": 0.25}
    expected = losses(make_named().fit, INPUTS, labels, class_weight=weights)
    assert expected != pytest.approx(losses(make_named().fit, INPUTS, labels), rel=1e-2)
    fit = resumed(tmp_path, make_named())
    assert losses(fit, INPUTS, labels, class_weight=weights) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match=r"checkpoint of another training.*class_weight="):
        losses(fit, INPUTS, labels, class_weight={"b": 5.0}, epochs=2)


@pytest.mark.any_backend("tensorflow")
def test_the_last_class_needs_no_weight(tmp_path):
    """Keras on TensorFlow fails without it."""
    weights = {"a": 5.0}
    expected = losses(make_named().fit, INPUTS, list("bacca"), class_weight=weights)
    found = losses(resumed(tmp_path, make_named()), INPUTS, list("bacca"), class_weight=weights)
    assert found == pytest.approx(expected, rel=1e-5)


def test_validation_has_the_masks_of_fit(tmp_path):
    def make():
        keras.utils.set_random_seed(8)
        model = tiny_task("masked_lm")
        model.compile(keras.optimizers.SGD(0.0))
        return model

    data = {"validation_data": (TEXTS, None), "epochs": 2}
    expected = losses(make().fit, TEXTS, **data)
    assert losses(resumed(tmp_path, make()), TEXTS, **data) == pytest.approx(expected, rel=1e-5)


class Endless(keras.utils.PyDataset):
    """Batches of two texts without an end."""

    num_batches = None

    def __getitem__(self, index):
        return [TEXTS[index % 5], TEXTS[(2 * index) % 5]], [index % 2, 1]


def test_validation_without_an_end_has_steps(tmp_path):
    def make():
        keras.utils.set_random_seed(8)
        return tiny_task("classifier")

    data = {"validation_data": Endless(), "validation_steps": 3}
    expected = losses(make().fit, TEXTS, [0, 1, 0, 1, 1], **data)
    found = losses(resumed(tmp_path, make()), TEXTS, [0, 1, 0, 1, 1], **data)
    assert found == pytest.approx(expected, rel=1e-5)


def test_sentences_in_arrays_are_split_between_sentences(tmp_path):
    sentences = [np.array(each) for each in words.SENTENCES]
    options = {"validation_split": 0.5}
    expected = losses(words.tiny().fit, words.SENTENCES, words.LABELS, **options)
    found = losses(resumed(tmp_path, words.tiny()), sentences, words.LABELS, **options)
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.any_backend("tensorflow")
def test_a_refused_training_does_not_change_the_model(tmp_path):
    labels = np.arange(5) % 3
    resumed(tmp_path, make_named())(INPUTS, labels, batch_size=2, verbose=0)
    model = make_named()
    before = model.get_weights()
    with pytest.raises(ValueError, match=r"batch_size=3 \(the checkpoint has 2\)"):
        resumed(tmp_path, model)(INPUTS, labels, batch_size=3, verbose=0)
    for weight, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)
