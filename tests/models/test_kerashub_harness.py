"""KerasHub's own test of a task, on ours. It is private, and needs TensorFlow on every backend."""

import pytest

from keras_diet.models import DietBertMaskedLM
from tests.models.tasks import tiny_preprocessor
from tests.models.tiny import TEXTS, tiny_backbone

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


without_autograph = tf.autograph.experimental.do_not_convert


def test_task(harness):
    # Everything is masked, so that nothing is random.
    masking = {"mask_selection_rate": 1.0, "mask_token_rate": 1.0, "random_token_rate": 0.0}
    preprocessor = tiny_preprocessor(
        "masked_lm", sequence_length=11, mask_selection_length=17, **masking
    )
    without_autograph(harness.run_task_test)(
        cls=DietBertMaskedLM,
        init_kwargs={"backbone": tiny_backbone(num_layers=1), "preprocessor": preprocessor},
        train_data=(TEXTS[:2],),
        expected_output_shape=(2, 17, 31),
    )
