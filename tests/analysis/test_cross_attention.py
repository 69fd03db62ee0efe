"""The attention of translations to their sources, and its picture."""

import numpy as np
import pytest

from keras_diet import analysis
from keras_diet.models import DietTransformerTokenizer
from tests import reference
from tests.helpers import assert_close, decoder_block_weights, to_numpy
from tests.models.diet_transformer.pairs import SOURCES, TARGETS
from tests.models.diet_transformer.tiny import tiny_translator

pytestmark = pytest.mark.any_backend
SOURCE, TARGET = SOURCES[1], "ein Hund"


@pytest.fixture(scope="module")
def proto():
    return DietTransformerTokenizer.from_texts(SOURCES + TARGETS, vocabulary_size=61).proto


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_layers": 2},
        {"dtype": "mixed_bfloat16"},
        {"dropout": 0.5},
    ],
    ids=str,
)
def test_rows_are_probabilities(proto, arguments):
    translator = tiny_translator(proto, arguments)
    attention = analysis.cross_attention(translator, SOURCE, TARGET)
    tokenizer = translator.preprocessor.tokenizer
    source, target = (
        [*(tokenizer.id_to_token(int(token)) for token in tokenizer(text)), "</s>"]
        for text in (SOURCE, TARGET)
    )
    assert attention.source_tokens == source
    assert attention.target_tokens == target
    assert len(source) != len(target)
    probabilities = attention.probabilities
    num_layers = arguments.get("num_layers", 1)
    assert probabilities.shape == (num_layers, 3, len(target), len(source))
    assert probabilities.dtype == "float32"
    tolerance = 1e-2 if "dtype" in arguments else 1e-5
    assert_close(probabilities.sum(axis=-1), np.ones(probabilities.shape[:-1]), tolerance)
    assert probabilities.std() > 1e-2


def test_one_layer_by_hand(proto):
    """Row `i` belongs to the step that predicts token `i`: its query is the token before."""
    translator = tiny_translator(proto, {"normalize_first": False, "position_encoding": "none"})
    backbone, preprocessor = translator.backbone, translator.preprocessor
    attention = analysis.cross_attention(translator, SOURCE, TARGET)
    _, _, target_length, source_length = attention.probabilities.shape
    inputs, _, _ = preprocessor([SOURCE], [TARGET])
    source_ids = to_numpy(inputs["encoder_token_ids"])[:, :source_length]
    target_ids = to_numpy(inputs["decoder_token_ids"])[:, :target_length]
    assert target_ids[0, 0] == preprocessor.tokenizer.start_token_id
    embeddings = to_numpy(backbone.token_embedding.embeddings) * np.sqrt(15)
    (block,) = backbone.decoder.transformer_layers
    weights = decoder_block_weights(block)
    x = embeddings[target_ids]
    causal = np.tri(target_length, dtype="bool")
    x = x + reference.multi_head_attention(x, x, weights["attention"], mask=causal)
    norm = (weights["attention_norm_gamma"], weights["attention_norm_beta"])
    x = reference.layer_norm(x, *norm, 1e-6)
    source = to_numpy(backbone.encode(source_ids))
    _, expected = reference.multi_head_attention(
        x, source, weights["cross_attention"], return_scores=True
    )
    assert_close(attention.probabilities[0], expected[0], 1e-4)
