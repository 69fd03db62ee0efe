"""CTranslate2 computes and generates the same as the translator that was written for it.

These tests run on every backend with the same weights, so all backends generate the same tokens.
"""

import json

import numpy as np
import pytest
import sentencepiece

from keras_diet.models import (
    DietTransformerBackbone,
    DietTransformerSeq2SeqLM,
    DietTransformerSeq2SeqLMPreprocessor,
    DietTransformerTokenizer,
)
from keras_diet.samplers import BeamSearchSampler
from tests.helpers import to_numpy
from tests.models.diet_transformer.pairs import SOURCES
from tests.models.diet_transformer.varied_weights import (
    assert_varied,
    generated,
    more_ends,
    varied_weight,
)

ctranslate2 = pytest.importorskip("ctranslate2")

LENGTH, BEAMS = 29, 4
# CTranslate2 forbids an end token at the beginning by default.
OPTIONS = {"max_decoding_length": LENGTH - 1, "min_decoding_length": 0, "return_end_token": True}
SHAW = {"position_encoding": "shaw", "cross_attention_positions": False, "max_distance": 3}
CASES = {
    "sinusoidal": {"position_encoding": "sinusoidal"},
    "post-norm": {
        "position_encoding": "sinusoidal",
        "normalize_first": False,
        "activation": "silu",
        "layer_norm_epsilon": 0.01,
    },
    "shaw": SHAW,
    "input": {"position_encoding": "input", "activation": "gelu"},
    "none": {"position_encoding": "none"},
}
any_backend = pytest.mark.any_backend
# With these weights the tokens are varied.
SEEDS = dict(zip(CASES, (0, 26, 1, 1, 1), strict=True))


def make(proto, seed=0, **arguments):
    tokenizer = DietTransformerTokenizer(proto)
    backbone = DietTransformerBackbone(
        **{
            "vocabulary_size": tokenizer.vocabulary_size(),
            "num_layers": 2,
            "num_heads": 3,
            "hidden_dim": 36,
            "intermediate_dim": 31,
            "max_sequence_length": LENGTH,
            "position_encoding": "sinusoidal",
            **arguments,
        }
    )
    preprocessor = DietTransformerSeq2SeqLMPreprocessor(
        tokenizer, encoder_sequence_length=LENGTH, decoder_sequence_length=LENGTH
    )
    rng = np.random.default_rng(seed)
    weights = {weight.path: weight for weight in backbone.weights}
    for path in sorted(weights):
        weights[path].assign(varied_weight(path, weights[path].shape, rng))
    embeddings = backbone.token_embedding.embeddings
    embeddings.assign(more_ends(to_numpy(embeddings), tokenizer.end_token_id))
    return DietTransformerSeq2SeqLM(backbone, preprocessor)


def tokens(translator):
    """The tokens of each source. CTranslate2 adds the end token."""
    tokenizer = translator.preprocessor.tokenizer
    return [[tokenizer.id_to_token(i) for i in row] for row in tokenizer.tokenize(SOURCES)]


def greedy(translator):
    """The generated tokens of each source, with the end token."""
    preprocessor = translator.preprocessor
    tokenizer = preprocessor.tokenizer
    task = DietTransformerSeq2SeqLM(translator.backbone)
    inputs = preprocessor.generate_preprocess(SOURCES)
    rows = generated(task, inputs, "greedy", tokenizer.end_token_id)
    return [[tokenizer.id_to_token(i) for i in row] for row in rows]


def first(results):
    return [result.hypotheses[0] for result in results]


def logits(translator, targets):
    """The logits of each token of the targets and of the one that follows."""
    inputs = translator.preprocessor.generate_preprocess(SOURCES)
    inputs = {name: to_numpy(value) for name, value in inputs.items()}
    tokenizer = translator.preprocessor.tokenizer
    for row, target in zip(inputs["decoder_token_ids"], targets, strict=True):
        row[1 : len(target)] = [tokenizer.token_to_id(token) for token in target[:-1]]
    inputs["decoder_padding_mask"] = np.ones_like(inputs["decoder_token_ids"])
    return to_numpy(translator(inputs))


def assert_same_tokens_and_logits(translator, folder):
    """Of greedy translations. Returns CTranslate2's tokens."""
    translator.export_to_ctranslate2(folder)
    exported = ctranslate2.Translator(str(folder), intra_threads=1)
    results = exported.translate_batch(
        tokens(translator), beam_size=1, return_logits_vocab=True, **OPTIONS
    )
    found = first(results)
    assert greedy(translator) == found
    for actual, result in zip(logits(translator, found), results, strict=True):
        expected = np.array([np.array(each) for each in result.logits[0]])
        assert expected.std() > 0.5
        np.testing.assert_allclose(actual[: len(expected)], expected, rtol=1e-4, atol=1e-4)
    return found


@any_backend
@pytest.mark.parametrize("case", CASES)
def test_logits_and_greedy_translations(proto, tmp_path, case):
    translator = make(proto, SEEDS[case], **CASES[case])
    assert_varied(assert_same_tokens_and_logits(translator, tmp_path))


@any_backend
def test_lora_is_written(proto, tmp_path):
    translator = make(proto)
    translator.backbone.enable_lora(rank=2)
    for weight in translator.backbone.trainable_weights:
        weight.assign(np.random.default_rng(5).normal(scale=0.3, size=weight.shape))
    assert_same_tokens_and_logits(translator, tmp_path)


@any_backend
def test_the_example_of_the_docstring(proto, tmp_path):
    """Beam search from a text to a text, with the files in the folder only."""
    translator = make(proto, SEEDS["sinusoidal"])
    translator.compile(sampler=BeamSearchSampler(BEAMS, length_penalty=0.0))
    expected = translator.generate(SOURCES)
    folder = tmp_path / "new" / "model"
    translator.export_to_ctranslate2(folder)
    # A second time replaces the files.
    translator.export_to_ctranslate2(folder)
    exported = ctranslate2.Translator(str(folder), intra_threads=1)
    tokenizer = sentencepiece.SentencePieceProcessor(str(folder / "vocabulary.spm"))
    sources = tokenizer.encode(SOURCES, out_type=str)
    options = {name: value for name, value in OPTIONS.items() if name != "return_end_token"}
    results = exported.translate_batch(sources, beam_size=BEAMS, length_penalty=0, **options)
    assert [tokenizer.decode(row) for row in first(results)] == expected


@any_backend
def test_special_tokens_of_other_names(shuffled_proto, tmp_path):
    translator = make(shuffled_proto)
    translator.export_to_ctranslate2(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    names = ("unk_token", "bos_token", "eos_token", "decoder_start_token")
    assert [config[name] for name in names] == ["[?]", "[GO]", "[END]", "[GO]"]


@any_backend
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"position_encoding": "diet_rel"}, "'diet_rel'.*Only 'sinusoidal'"),
        ({**SHAW, "cross_attention_positions": True}, "attention_positions=True.*attention_posi"),
        ({"activation": "tanh"}, "'tanh'.*Only 'relu', 'gelu', 'silu'"),
        ({}, "quantized weights.*before `quantize`"),
    ],
    ids=["encoding", "cross-attention", "activation", "quantized"],
)
def test_what_cannot_be_written(proto, tmp_path, arguments, message):
    translator = make(proto, **arguments)
    if not arguments:
        # A part of the model is enough.
        translator.quantize("int8", filters=lambda layer: "decoder" in str(layer.path))
    with pytest.raises(ValueError, match=message):
        translator.export_to_ctranslate2(tmp_path)
    assert not list(tmp_path.iterdir())
