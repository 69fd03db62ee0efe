"""KerasHub's own tests of backbones, tasks, preprocessors and layers, on all our classes.

They are private and need TensorFlow on every backend, so they run with TensorFlow. They
would pass a model that ignores its padding mask, or a layer with a weight that nothing reads. Other
files test this.
"""

import keras
import numpy as np
import pytest

from keras_diet import layers
from keras_diet.models import (
    DietBertBackbone,
    DietBertMaskedLM,
    DietBertMaskedLMPreprocessor,
    DietBertSentencePieceTokenizer,
    DietBertTextClassifier,
    DietBertTextClassifierPreprocessor,
    DietBertTokenizer,
)
from tests.models.multilingual import multilingual_tokenizer
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


INPUTS = {
    DietBertTextClassifierPreprocessor: ((TEXTS[:2], TEXTS[2:4]), [1, 0], [0.5, 1.0]),
    DietBertMaskedLMPreprocessor: TEXTS[:2],
}


@pytest.mark.parametrize("cls", INPUTS)
def test_preprocessor(harness, cls):
    arguments = DETERMINISTIC if cls is DietBertMaskedLMPreprocessor else {}
    harness.init_kwargs = {
        "tokenizer": DietBertTokenizer(VOCABULARY),
        "sequence_length": 11,
        **arguments,
    }
    without_autograph(harness.run_preprocessor_test)(cls, harness.init_kwargs, INPUTS[cls])


def test_tokenizer(harness):
    harness.run_preprocessing_layer_test(
        DietBertTokenizer,
        {"vocabulary": VOCABULARY},
        input_data=["the quick fox", "the dogs sleep"],
        expected_detokenize_output=["the quick fox", "the dogs sleep"],
    )


def test_sentence_piece_tokenizer(harness):
    harness.run_preprocessing_layer_test(
        DietBertSentencePieceTokenizer,
        {"proto": multilingual_tokenizer().proto},
        input_data=["the quick fox", "der Hund"],
        expected_detokenize_output=["the quick fox", "der Hund"],
    )


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

HIDDEN = np.linspace(-1, 1, 7 * 15, dtype="float32").reshape(1, 7, 15)
SEGMENTS = np.array([[0, 0, 1, 4, 3]], dtype="int32")
SCORES, OUTPUT = (1, 3, 7, 7), (1, 7, 15)
HEADS = {"num_heads": 3}
UNTIED = {"key_dim": 5, "max_length": 11, "position_dim": 15}
STACK = {"num_layers": 2, "intermediate_dim": 23, "max_sequence_length": 11}
LINFORMER = {"sequence_length": 11, "projection_dim": 5}
LAYERS = [
    (layers.AbsolutePositionBias, {**HEADS, "max_length": 11, "rank": 5}, SCORES, 2),
    (layers.RelativePositionBias, {**HEADS, "max_length": 11}, SCORES, 1),
    (layers.BucketedRelativePositionBias, {**HEADS, "num_buckets": 8}, SCORES, 1),
    (layers.UntiedPositionBias, {**HEADS, **UNTIED}, SCORES, 6),
    (layers.SegmentBias, {**HEADS, "num_segments": 5}, (1, 3, 5, 5), 1),
    (layers.InputEncoding, {"max_sequence_length": 11, "num_segments": 2}, OUTPUT, 2),
    (layers.BiasedTransformerEncoder, {**HEADS, "intermediate_dim": 23}, OUTPUT, 16),
    (layers.DietEncoder, {**HEADS, **STACK}, OUTPUT, 36),
    (layers.BiasedMultiHeadAttention, {**HEADS, "key_dim": 5}, OUTPUT, 8),
    (layers.RelativeMultiHeadAttention, {**HEADS, "key_dim": 5, "max_distance": 4}, OUTPUT, 10),
    (layers.TransformerXLMultiHeadAttention, {**HEADS, "key_dim": 5}, OUTPUT, 11),
    (layers.LinformerMultiHeadAttention, {**HEADS, "key_dim": 5, **LINFORMER}, OUTPUT, 10),
]


@pytest.mark.parametrize(("cls", "arguments", "shape", "num_weights"), LAYERS)
def test_layer(harness, cls, arguments, shape, num_weights):
    x = keras.ops.convert_to_tensor(SEGMENTS if cls is layers.SegmentBias else HIDDEN)
    is_attention = issubclass(cls, keras.layers.MultiHeadAttention)
    harness.run_layer_test(
        cls=cls,
        init_kwargs=arguments,
        input_data={"query": x, "value": x} if is_attention else x,
        expected_output_shape=shape,
        expected_num_trainable_weights=num_weights,
    )
