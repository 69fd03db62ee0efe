"""KerasHub's own tests of backbones and tasks, on ours.

They are private and need TensorFlow on every backend, so they run with TensorFlow. They
would pass a model that ignores its padding mask. Other files test this.
"""

import pytest

from keras_diet.models import DietBertBackbone
from tests.models.tasks import CLASSES, tiny_preprocessor
from tests.models.tiny import SIZES, TEXTS, random_inputs, tiny_backbone

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


# Everything is masked, so that nothing is random.
MASKING = {
    "mask_selection_rate": 1.0,
    "mask_selection_length": 17,
    "mask_token_rate": 1.0,
    "random_token_rate": 0.0,
}
TASKS = {
    "masked_lm": (MASKING, {}, (TEXTS[:2],), (2, 17, 31)),
    "classifier": ({}, {"activation": "softmax"}, ((TEXTS[:2], TEXTS[2:4]), [1, 2]), (2, 7)),
}


@pytest.mark.parametrize("task", TASKS)
def test_task(harness, task):
    cls, _, head = CLASSES[task]
    masking, arguments, train_data, shape = TASKS[task]
    preprocessor = tiny_preprocessor(task, sequence_length=11, **masking)
    # It takes most of the time, and the preprocessors are written without it.
    tf.autograph.experimental.do_not_convert(harness.run_task_test)(
        cls=cls,
        init_kwargs={
            "backbone": tiny_backbone(num_layers=1),
            "preprocessor": preprocessor,
            **head,
            **arguments,
        },
        train_data=train_data,
        expected_output_shape=shape,
    )
