"""`fit` as users run it on TensorFlow, with compiled steps. Most other tests run eager steps.

JAX always compiles. XLA takes longer here than the steps: `test_unpatched.py` has it.
"""

import keras
import numpy as np
import pytest

from keras_diet.training import ExactResume, TokenBatches
from tests.helpers import assert_all_close, to_numpy
from tests.models import test_token_classification as words
from tests.models.diet_transformer import tiny as translation
from tests.models.diet_transformer.pairs import SOURCES, TARGETS
from tests.models.question_answering import ANSWERS, CONTEXTS, QUESTIONS, tiny_question_answerer
from tests.models.tasks import tiny_preprocessor, tiny_task
from tests.models.test_data import DATASETS, LABELS, WEIGHTS, call, close, make_columns
from tests.models.tiny import TEXTS, randomize_weights

pytestmark = [
    pytest.mark.any_backend("tensorflow"),
    pytest.mark.usefixtures("compiled_steps"),
    pytest.mark.filterwarnings("ignore:Your input ran out of data"),
]


def make_embedder():
    model = tiny_task("embedder")
    model.compile(loss="mse")
    return model


# A model, and its texts and labels.
TASKS = {
    "classifier": lambda: (tiny_task("classifier"), TEXTS, LABELS),
    "masked_lm": lambda: (tiny_task("masked_lm"), TEXTS, None),
    "embedder": lambda: (make_embedder(), TEXTS, np.eye(5, 15, dtype="float32")),
    "token_classifier": lambda: (words.tiny(), words.SENTENCES, words.LABELS),
    "question_answerer": lambda: (tiny_question_answerer(), (QUESTIONS, CONTEXTS), ANSWERS),
    "translator": lambda: (
        translation.tiny_translator(translation.proto(), decoder_sequence_length=67),
        SOURCES,
        TARGETS,
    ),
}


@pytest.mark.parametrize("name", TASKS)
def test_compiled_steps_train_as_eager_steps(name):
    results = []
    for eagerly in (True, False):
        keras.utils.set_random_seed(5)
        model, x, y = TASKS[name]()
        for layer in model._flatten_layers():
            if isinstance(layer, keras.layers.Dropout):
                layer.rate = 0.0
        randomize_weights(model)
        model.compile(
            keras.optimizers.SGD(0.05), model.loss, run_eagerly=eagerly, jit_compile=False
        )
        assert model.run_eagerly is eagerly
        history = model.fit(x, y, batch_size=3, epochs=2, verbose=0).history
        results.append([*history["loss"], *model.get_weights()])
    assert_all_close(*results, tolerance=1e-4)


@pytest.fixture(scope="module")
def model():
    model = randomize_weights(tiny_task("classifier"))
    model.output_dropout.rate = 0.0
    model.compile(keras.optimizers.SGD(0.0), jit_compile=False)
    return model


@pytest.mark.parametrize("kind", [*DATASETS, "list", "objects"])
def test_compiled_steps_read_each_kind_of_data(model, kind):
    parts = (TEXTS, LABELS, WEIGHTS)
    data = DATASETS[kind](*parts) if kind in DATASETS else make_columns(kind, *parts)
    assert not model.run_eagerly
    assert call(model.fit, data).history["loss"] == close([weighted_loss(model)])


def weighted_loss(model):
    losses = keras.losses.sparse_categorical_crossentropy(
        LABELS, to_numpy(model(model.preprocessor(TEXTS))), from_logits=True
    )
    return to_numpy(losses) @ WEIGHTS / 5


# Data with labels and weights of shape (n, 1).
COLUMN = (TEXTS, LABELS[:, None], WEIGHTS[:, None])


def token_batches(model):
    data = TokenBatches(COLUMN, tokens_per_batch=12, seed=7, preprocessor=model.preprocessor)
    # The lengths of the first two batches, and of the last one, are not those of all.
    assert [data[i][0]["token_ids"].shape[1] for i in range(5)] == [12, 12, 13, 13, 12]
    return data


TRAININGS = {
    "fit": lambda model, folder: call(model.fit, COLUMN, validation_data=COLUMN),
    "generator": lambda model, folder: call(model.fit, DATASETS["generator"](*COLUMN)),
    "token batches": lambda model, folder: call(
        model.fit, token_batches(model), validation_data=token_batches(model)
    ),
    "ExactResume": lambda model, folder: ExactResume(folder, 3).fit(
        model, token_batches(model), validation_data=COLUMN, validation_batch_size=2, verbose=0
    ),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_columns_of_labels_go_with_length_buckets(tmp_path, name):
    """Keras must know that the second axis of labels has the size 1, but that of texts has none."""
    model = tiny_task("classifier")
    model.preprocessor = tiny_preprocessor("classifier", length_buckets=(12,))
    randomize_weights(model).output_dropout.rate = 0.0
    model.compile(keras.optimizers.SGD(0.0), jit_compile=False)
    losses = TRAININGS[name](model, tmp_path).history
    losses = losses["loss"] + losses.get("val_loss", [])
    losses.append(call(model.evaluate, token_batches(model))[0])
    assert losses == close([weighted_loss(model)] * len(losses))
    # The same program takes labels without the second axis.
    if name == "fit":
        data = (TEXTS, LABELS, WEIGHTS)
        assert call(model.fit, data).history["loss"] == close([weighted_loss(model)])
