"""KerasHub's own tests on DietTransformer. They are private, and need TensorFlow."""

import pytest

from keras_diet.models import (
    DietTransformerBackbone,
    DietTransformerSeq2SeqLM,
    DietTransformerSeq2SeqLMPreprocessor,
    DietTransformerTokenizer,
)
from tests.models.diet_transformer.pairs import SOURCES, TARGETS
from tests.models.diet_transformer.tiny import SIZES, random_inputs, tiny_backbone

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
    inputs = random_inputs(rng)
    harness.run_backbone_test(
        cls=DietTransformerBackbone,
        init_kwargs={**SIZES, "num_layers": 1},
        input_data=inputs,
        expected_output_shape={
            "encoder_sequence_output": (2, 11, 15),
            "decoder_sequence_output": (2, 7, 15),
        },
        variable_length_data=[{name: x[:, :3] for name, x in inputs.items()}],
    )


@pytest.mark.filterwarnings("ignore:.* pairs are cut")
def test_task(harness, proto):
    preprocessor = DietTransformerSeq2SeqLMPreprocessor(DietTransformerTokenizer(proto), 23, 13)
    pairs = {"encoder_text": SOURCES[:2], "decoder_text": TARGETS[:2]}
    backbone = tiny_backbone(num_layers=1, vocabulary_size=61, max_sequence_length=23)
    tf.autograph.experimental.do_not_convert(harness.run_task_test)(
        cls=DietTransformerSeq2SeqLM,
        init_kwargs={"backbone": backbone, "preprocessor": preprocessor},
        train_data=(pairs,),
        expected_output_shape=(2, 13, 61),
    )
