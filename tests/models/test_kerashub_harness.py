"""KerasHub's own tests of backbones, tasks, preprocessors and layers, on all our classes.

They are private and need TensorFlow on every backend, so they run with TensorFlow. They
would pass a model that ignores its padding mask, or a layer with a weight that nothing reads. Other
files test this.
"""

import pytest

from keras_diet.models import (
    DietBertBackbone,
    DietBertMaskedLM,
    DietBertMaskedLMPreprocessor,
    DietBertTextClassifier,
    DietBertTextClassifierPreprocessor,
    DietBertTokenizer,
)
from tests.models.tiny import SIZES, TEXTS, VOCABULARY, random_inputs, tiny_backbone

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text", reason="KerasHub's harness runs tf.data on any backend")

pytestmark = [
    pytest.mark.any_backend("tensorflow"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture
def harness():
    """KerasHub's test case, to call its checks from functions."""
    from keras_hub.src.tests.test_case import TestCase

    class Harness(TestCase):
        def runTest(self):
            raise NotImplementedError

    return Harness()


# === Backbone ===


@pytest.mark.usefixtures("compiled_steps")
def test_backbone(harness, rng):
    inputs = random_inputs(rng, length=7)
    harness.run_backbone_test(
        cls=DietBertBackbone,
        init_kwargs={**SIZES, "num_layers": 1, "position_encoding": "diet_abs"},
        input_data=inputs,
        expected_output_shape={"sequence_output": (2, 7, 15), "pooled_output": (2, 15)},
        # One other length: JAX compiles for each.
        variable_length_data=[{name: x[:, :3] for name, x in inputs.items()}],
    )


# === Preprocessors and tokenizer ===

# They are written without it, and it takes most of the time; other tests of tf.data have it.
without_autograph = tf.autograph.experimental.do_not_convert
# Everything is masked, so that nothing is random.
DETERMINISTIC = {
    "mask_selection_rate": 1.0,
    "mask_selection_length": 17,
    "mask_token_rate": 1.0,
    "random_token_rate": 0.0,
}


# === Tasks ===

TASKS = {
    "masked_lm": (
        DietBertMaskedLM,
        DietBertMaskedLMPreprocessor,
        {},
        (TEXTS[:2],),
        (2, 17, 31),
    ),
    "classifier": (
        DietBertTextClassifier,
        DietBertTextClassifierPreprocessor,
        {"num_classes": 3, "activation": "softmax"},
        ((TEXTS[:2], TEXTS[2:4]), [1, 2]),
        (2, 3),
    ),
}


@pytest.mark.parametrize("task", TASKS)
def test_task(harness, task):
    cls, preprocessor_cls, arguments, train_data, shape = TASKS[task]
    others = {DietBertMaskedLM: DETERMINISTIC}
    preprocessor = preprocessor_cls(
        DietBertTokenizer(VOCABULARY), sequence_length=11, **others.get(cls, {})
    )
    without_autograph(harness.run_task_test)(
        cls=cls,
        init_kwargs={
            "backbone": tiny_backbone(num_layers=1),
            "preprocessor": preprocessor,
            **arguments,
        },
        train_data=train_data,
        expected_output_shape=shape,
    )


# === Layers ===

SCORES, OUTPUT = (1, 3, 7, 7), (1, 7, 15)
