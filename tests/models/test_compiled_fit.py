"""`fit` as users run it on TensorFlow, with compiled steps. Most other tests run eager steps.

JAX always compiles. XLA takes longer here than the steps: `test_unpatched.py` has it.
"""

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, to_numpy
from tests.models import test_token_classification as words
from tests.models.diet_transformer import tiny as translation
from tests.models.question_answering import ANSWERS, CONTEXTS, QUESTIONS, tiny_question_answerer
from tests.models.tasks import tiny_task
from tests.models.test_data import COLUMNS, DATASETS, LABELS, WEIGHTS, call, close, make_columns
from tests.models.tiny import TEXTS, randomize_weights

pytestmark = [
    pytest.mark.any_backend("tensorflow"),
    pytest.mark.usefixtures("compiled_steps"),
    pytest.mark.filterwarnings("ignore:Your input ran out of data"),
]


@pytest.fixture(scope="module")
def proto():
    return translation.DietTransformerTokenizer.from_texts(TEXTS, 61).proto


def make_embedder():
    model = tiny_task("embedder")
    model.compile(loss="mse")
    return model


# A model, and its texts and labels.
TASKS = {
    "classifier": lambda proto: (tiny_task("classifier"), TEXTS, LABELS),
    "masked_lm": lambda proto: (tiny_task("masked_lm"), TEXTS, None),
    "embedder": lambda proto: (make_embedder(), TEXTS, np.eye(5, 15, dtype="float32")),
    "token_classifier": lambda proto: (words.tiny(), words.SENTENCES, words.LABELS),
    "question_answerer": lambda proto: (tiny_question_answerer(), (QUESTIONS, CONTEXTS), ANSWERS),
    "translator": lambda proto: (
        translation.tiny_translator(proto, decoder_sequence_length=67),
        TEXTS,
        TEXTS[::-1],
    ),
}


@pytest.mark.parametrize("name", TASKS)
def test_compiled_steps_train_as_eager_steps(proto, name):
    results = []
    for eagerly in (True, False):
        keras.utils.set_random_seed(5)
        model, x, y = TASKS[name](proto)
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
    for found, expected in zip(*results, strict=True):
        assert_close(found, expected, 1e-4)


@pytest.fixture(scope="module")
def model():
    model = randomize_weights(tiny_task("classifier"))
    model.output_dropout.rate = 0.0
    model.compile(keras.optimizers.SGD(0.0), jit_compile=False)
    return model


# TensorFlow cannot use one program for "objects" too, whose labels have a second axis.
@pytest.mark.parametrize("kind", [kind for kind in (*DATASETS, *COLUMNS) if kind != "objects"])
def test_compiled_steps_read_each_kind_of_data(model, kind):
    parts = (TEXTS, LABELS, WEIGHTS)
    data = DATASETS[kind](*parts) if kind in DATASETS else make_columns(kind, *parts)
    losses = keras.losses.sparse_categorical_crossentropy(
        LABELS, to_numpy(model(model.preprocessor(TEXTS))), from_logits=True
    )
    assert not model.run_eagerly
    assert call(model.fit, data).history["loss"] == close([to_numpy(losses) @ WEIGHTS / 5])
