"""KerasHub's own tests of tokenizers and preprocessors, on those of DietTransformer."""

import pytest

from keras_diet.models import DietTransformerSeq2SeqLMPreprocessor, DietTransformerTokenizer
from tests.models.diet_transformer.pairs import SOURCES, TARGETS
from tests.models.test_kerashub_harness import harness, without_autograph

__all__ = ["harness"]

pytestmark = [
    pytest.mark.any_backend("tensorflow"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def test_tokenizer(harness, shuffled_proto):
    harness.run_preprocessing_layer_test(
        DietTransformerTokenizer,
        {"proto": shuffled_proto},
        input_data=SOURCES[:2],
        expected_detokenize_output=SOURCES[:2],
    )


@pytest.mark.parametrize("kind", ["dictionary", "pair"])
def test_preprocessor(harness, proto, kind):
    pairs = {"encoder_text": SOURCES[:2], "decoder_text": TARGETS[:2]}
    harness.init_kwargs = {
        "tokenizer": DietTransformerTokenizer(proto),
        "encoder_sequence_length": 23,
        "decoder_sequence_length": 13,
    }
    without_autograph(harness.run_preprocessor_test)(
        DietTransformerSeq2SeqLMPreprocessor,
        harness.init_kwargs,
        pairs if kind == "dictionary" else (SOURCES[:2], TARGETS[:2]),
        token_id_key="decoder_token_ids",
    )
