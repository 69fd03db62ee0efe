"""Malformed arguments and inputs of the DietTransformer models."""

import functools

import keras
import numpy as np
import pytest

from keras_diet import analysis
from keras_diet import models as M
from keras_diet.layers import AlibiPositionBias
from keras_diet.samplers import BeamSearchSampler
from tests.malformed.refusals import assert_refused, cases
from tests.models.diet_transformer.pairs import SOURCES, TARGETS
from tests.models.diet_transformer.tiny import (
    prompts,
    random_inputs,
    tiny_backbone,
    tiny_task,
    tiny_translator,
)

pytestmark = pytest.mark.any_backend

# A refused call does not change a model, so the cases share models.
bb = functools.cache(tiny_backbone)
task = functools.cache(tiny_task)
INPUTS = random_inputs(np.random.default_rng(3))
PROMPTS = prompts(INPUTS)
PROTOS = functools.cache(
    lambda size: M.DietTransformerTokenizer.from_texts(SOURCES + TARGETS, size).proto
)
NO = np.zeros_like


@functools.cache
def translator():
    translator = tiny_translator(PROTOS(61))
    translator.compile(sampler="greedy")
    return translator


def b(**arguments):
    return lambda: tiny_backbone(**arguments)


ARGUMENTS = {
    "vocabulary_size": (
        b(vocabulary_size=0),
        "`vocabulary_size` must be a positive integer. Received: vocabulary_size=0",
    ),
    "num_layers 0": (
        b(num_layers=0),
        "`num_layers` must be a positive integer. Received: num_layers=0",
    ),
    "num_layers float": (
        b(num_layers=2.0),
        "`num_layers` must be a positive integer. Received: num_layers=2.0",
    ),
    "num_heads": (
        b(num_heads="3"),
        "`num_heads` must be a positive integer. Received: num_heads='3'",
    ),
    "heads not dividing": (
        b(num_heads=4),
        "`hidden_dim` must be divisible by `num_heads`. Received: hidden_dim=15, num_heads=4",
    ),
    "hidden_dim": (
        b(hidden_dim=None),
        "`hidden_dim` must be a positive integer. Received: hidden_dim",
    ),
    "intermediate_dim": (
        b(intermediate_dim=-23),
        "`intermediate_dim` must be a positive integer. Received: intermediate_dim=-23",
    ),
    "dropout": (b(dropout=1.5), "`dropout` must be a number in [0, 1]. Received: dropout=1.5"),
    "max_sequence_length": (
        b(max_sequence_length=True),
        "`max_sequence_length` must be a positive integer. Received: max_sequence_length=True",
    ),
    "position_encoding": (
        b(position_encoding="rope"),
        "`position_encoding` must be one of ... Received: position_encoding='rope'",
    ),
    "position_encoding None": (b(position_encoding=None), "`position_encoding` must be"),
    "layer of Keras": (
        b(position_encoding=keras.layers.Dense(11)),
        "`position_encoding` must be a bias layer, which returns ... Received: <Dense name=",
    ),
    "bias layer of other heads": (
        b(position_encoding=AlibiPositionBias(5)),
        "`position_encoding` must have scores for 3 heads. ... num_heads=5",
    ),
    "rank": (b(position_encoding="diet_abs", rank=0), "`rank` must be a positive integer"),
    "rank without use": (b(rank=7), "`rank` ... Received: rank=7"),
    "sharing": (b(sharing="yes"), "`sharing` must be one of ... Received: sharing='yes'"),
    "sharing without use": (
        b(position_encoding="sinusoidal", sharing="none"),
        "`sharing` ... Received: sharing='none'",
    ),
    "cross_attention_positions": (
        b(cross_attention_positions="no"),
        "`cross_attention_positions` must be one of False, True. Received: cross_attention",
    ),
    "normalize_first": (
        b(normalize_first=None),
        "`normalize_first` must be one of False, True. Received: normalize_first=None",
    ),
    "activation": (
        b(activation="rely"),
        "Could not interpret activation function identifier: rely",
    ),
    "max_distance": (
        b(position_encoding="shaw", max_distance=0),
        "`max_distance` must be a positive integer. Received: max_distance=0",
    ),
    "max_distance without use": (b(max_distance=4), "`max_distance` ... Received: max_distance=4"),
    "attention_implementation": (
        b(attention_implementation="quick"),
        "`attention_implementation` must be one of ... attention_implementation='quick'",
    ),
}


@cases(ARGUMENTS)
def test_arguments_of_backbones(sent, message):
    assert_refused(sent, message)


def test_unknown_arguments():
    with pytest.raises(TypeError, match="num_segments"):
        tiny_backbone(num_segments=2)


def i(**changes):
    """Inputs with changes. `None` removes an input."""
    inputs = {**INPUTS, **changes}
    return {name: value for name, value in inputs.items() if value is not None}


def longer(side, length=14):
    ones = np.ones((2, length), "int32")
    return {f"{side}_token_ids": ones, f"{side}_padding_mask": ones}


CALLS = {
    "array": (INPUTS["encoder_token_ids"], "`x` must be a dictionary with the keys 'encoder_token"),
    "missing": (
        i(decoder_padding_mask=None),
        "`x` must have the keys ... missing: 'decoder_padding_mask'",
    ),
    "unknown": (
        i(segment_ids=INPUTS["encoder_token_ids"]),
        "`x` must have the keys ... unknown: 'segment_ids'",
    ),
    "list": (i(encoder_token_ids=[[1]]), "`x['encoder_token_ids']` must be an array or a tensor"),
    "axes": (
        i(decoder_token_ids=np.ones(7, "int32")),
        "`x['decoder_token_ids']` must have the shape (batch_size, length). Received: shape=(7,)",
    ),
    "shapes": (
        i(encoder_padding_mask=np.ones((2, 7), "int32")),
        "'encoder_token_ids', 'encoder_padding_mask' must have the same shape ... of shape (2, 7)",
    ),
    "batch sizes": (
        i(**{name: INPUTS[name][:1] for name in INPUTS if name.startswith("decoder")}),
        "All inputs must have the same batch size. Received: 2 in the inputs of the encoder, 1",
    ),
    "source ids": (
        i(encoder_token_ids=INPUTS["encoder_token_ids"] + 30),
        "`x['encoder_token_ids']` must hold integers in [0, vocabulary_size) = [0, 31)",
    ),
    "target ids": (
        i(decoder_token_ids=INPUTS["decoder_token_ids"] - 1),
        "`x['decoder_token_ids']` must hold integers in [0, vocabulary_size) ... values from -1 to",
    ),
    "mask": (
        i(encoder_padding_mask=INPUTS["encoder_padding_mask"] * 2),
        "`x['encoder_padding_mask']` must hold 1 for tokens and 0 for padding",
    ),
    "long source": (
        i(**longer("encoder")),
        "longer than `max_sequence_length` allows. Received: length=14, max_sequence_length=13",
    ),
    "long target": (
        i(**longer("decoder")),
        "longer than `max_sequence_length` allows. Received: length=14, max_sequence_length=13",
    ),
}


@cases(CALLS)
def test_inputs_of_backbones(sent, message):
    assert_refused(lambda: bb()(sent), message)


@cases({name: CALLS[name] for name in ("missing", "unknown", "batch sizes", "target ids")})
def test_inputs_of_tasks(sent, message):
    labels = INPUTS["decoder_token_ids"]
    assert_refused(lambda: task().fit(sent, labels, verbose=0), message)
    assert_refused(lambda: task().predict(sent, verbose=0), message)
    assert_refused(lambda: task().generate(sent, stop_token_ids=None), message)


LABELS = {
    "range": (
        INPUTS["decoder_token_ids"] + 31,
        "Labels `y` must lie in [0, vocabulary_size) = [0, 31). Received: labels from 31 to",
    ),
    "shape": (
        np.ones((2, 11), "int32"),
        "Labels `y` must have the shape of `x['decoder_token_ids']`, (2, 7). ... (2, 11)",
    ),
    "number": (np.ones((3, 7), "int32"), "must have the same number of examples. ... 3 in `y`"),
    "None": (None, "y"),
}


@cases(LABELS)
def test_labels(sent, message):
    assert_refused(lambda: task().fit(INPUTS, sent, verbose=0), message)


def g(inputs=PROMPTS, stop_token_ids=(2,), **arguments):
    return lambda: task().generate(inputs, stop_token_ids=stop_token_ids, **arguments)


def t(inputs, **arguments):
    return lambda: translator().generate(inputs, **arguments)


def with_sampler(sampler):
    def call():
        tiny = tiny_task(num_layers=1)
        tiny.compile(sampler=sampler)
        return tiny.generate(PROMPTS, stop_token_ids=(2,))

    return call


def with_preprocessor(preprocessor):
    def call():
        task = M.DietTransformerSeq2SeqLM(bb())
        task.preprocessor = preprocessor
        return task.generate(["a"])

    return call


def fits(size, model_size, place="constructor"):
    """Translate with a tokenizer of `size` tokens."""

    def call():
        if place == "constructor":
            return tiny_translator(PROTOS(size), {"vocabulary_size": model_size})
        right = tiny_translator(PROTOS(model_size), {"vocabulary_size": model_size})
        right.preprocessor = M.DietTransformerSeq2SeqLMPreprocessor(
            M.DietTransformerTokenizer(PROTOS(size)), 67, 17
        )
        right.compile(sampler="greedy")
        return right.generate(SOURCES) if place == "generate" else right.fit(SOURCES, TARGETS)

    return call


SMALLER = "tokens that the tokenizer does not know. Received: ... =61 ... 59 tokens. ... =59`"
LARGER = "tokens without an embedding in the backbone. Received: ... =59 ... 61 tokens"
GENERATE = {
    "text without a preprocessor": (g(["a"]), "`x` must be a dictionary ... Received: text"),
    "nothing": (g(None), "`x` must be a dictionary ... Received: NoneType"),
    "auto": (g(stop_token_ids="auto"), "A `preprocessor` must be attached"),
    "stop int": (g(stop_token_ids=2), "`stop_token_ids` must be ... Received: stop_token_ids=2."),
    "stop text": (g(stop_token_ids="</s>"), "`stop_token_ids` must be ... stop_token_ids='</s>'"),
    "stop range": (g(stop_token_ids=(31,)), "[0, vocabulary_size) = [0, 31). ... (31,)"),
    "strip_prompt": (g(strip_prompt=True), "`strip_prompt` must be False"),
    "batch_size without a preprocessor": (g(batch_size=2), "`batch_size` needs a `Diet"),
    "no source": (
        g({**PROMPTS, "encoder_padding_mask": NO(PROMPTS["encoder_padding_mask"])}),
        "`x['encoder_padding_mask']` must have at least one token ... none in row 0",
    ),
    "no start": (
        g({**PROMPTS, "decoder_padding_mask": NO(PROMPTS["decoder_padding_mask"])}),
        "`x['decoder_padding_mask']` must have 1 for the first token ... none in row 0",
    ),
    "long source of ids": (
        g({**PROMPTS, **longer("encoder")}),
        "length=14, max_sequence_length=13",
    ),
    "long target of ids": (
        g({**PROMPTS, **longer("decoder")}),
        "length=14, max_sequence_length=13",
    ),
    "sampler": (with_sampler("x"), "`sampler` must be a `keras_hub.samplers.Sampler` ... 'x'"),
    "contrastive sampler": (
        with_sampler("contrastive"),
        "`sampler` must choose tokens by their logits ... Received: ContrastiveSampler. Choose",
    ),
    "speculative sampler": (
        with_sampler("speculative"),
        "`sampler` must choose tokens by their logits ... Received: SpeculativeSampler. Choose",
    ),
    "beams": (
        with_sampler(BeamSearchSampler(32)),
        "`num_beams` must be at most the size of the vocabulary. Received: num_beams=32 ... 31",
    ),
    "all beams": (
        with_sampler(BeamSearchSampler(4, return_all_beams=True)),
        "one target for each source. Received: return_all_beams=True",
    ),
    "penalty": (
        lambda: BeamSearchSampler(4, float("nan")),
        "`length_penalty` must be a finite number of at least 0. Received: length_penalty=nan",
    ),
    "not compiled": (
        lambda: M.DietTransformerSeq2SeqLM(bb(), compile=False).generate(PROMPTS),
        "`generate` needs a compiled model. Received: compile=False",
    ),
    "empty source": (t(""), "`encoder_text` must hold texts that are not empty. Received: ''"),
    "empty source in a batch": (
        t(["the fox", " "], batch_size=1),
        "`encoder_text` must hold texts that are not empty. Received: ' ' in row 1",
    ),
    "no sources": (t([]), "`x` must hold at least one example"),
    "number": (t(["the fox", 3], batch_size=1), "must hold strings. Received: 3 in row 1"),
    "missing": (t(["the fox", None], batch_size=1), "must hold strings. Received: None in row 1"),
    "tuple": (t(("a", "b"), batch_size=1), "must be a string, a list of strings, or an array"),
    "nested": (t([["a", "b"]], batch_size=1), "must be a string, a list of strings, or an array"),
    "prompts of another number": (
        t({"encoder_text": ["a", "b"], "decoder_text": ["a"]}),
        "as many targets as sources. Received: a batch of 2 in ... a batch of 1 in",
    ),
    "long source in a batch": (
        t(["a", "the dog", "the dog " * 40, "the fox"], batch_size=1),
        "`encoder_text` must have at most 66 tokens ... tokens in row 2",
    ),
    "long prompt in a batch": (
        t({"encoder_text": ["a fox", "a"], "decoder_text": ["", "der " * 30]}, batch_size=1),
        "`decoder_text` must have at most 15 tokens ... tokens in row 1",
    ),
    "invisible source": (
        t(["the fox", "\u200b"]),
        "`encoder_text` must hold texts that are not empty. Received: no token in row 1",
    ),
    "prompts only": (
        t({"decoder_text": ["a"]}),
        "the keys 'encoder_text' and 'decoder_text'",
    ),
    "dataset in batches": (
        t(iter(["a"]), batch_size=1),
        "`batch_size` needs ... a list of texts. Received: inputs=list_iterator",
    ),
    "max_length without a preprocessor": (
        g(max_length=5),
        "`max_length` needs a preprocessor. Received: max_length=5, preprocessor=None",
    ),
    "function": (
        with_preprocessor(lambda x, y=None, sample_weight=None: x),
        "`generate` needs a preprocessor with `generate_preprocess` ... Received: function",
    ),
    "batch_size": (t(["a"], batch_size=0), "`batch_size` must be a positive integer. ... =0"),
    "long source": (
        t("the dog " * 40),
        "`encoder_text` must have at most 66 tokens, because encoder_sequence_length=67 ... row 0",
    ),
    "long prompt": (
        t({"encoder_text": "the dog", "decoder_text": "der Hund der Hund"}, max_length=5),
        "`decoder_text` must have at most 3 tokens, because max_length=5 includes",
    ),
    "max_length 1": (t("the dog", max_length=1), "must have room for the start ... max_length=1."),
    "max_length float": (
        t("a", max_length=5.5),
        "`max_length` must be a positive integer. ... 5.5",
    ),
    "max_length of the model": (
        t("the dog", max_length=72),
        "`max_length` must be at most 71, ... Received: max_length=72",
    ),
    "smaller tokenizer": (fits(59, 61), SMALLER),
    "larger tokenizer": (fits(61, 59), LARGER),
    "smaller tokenizer later": (fits(59, 61, "generate"), SMALLER),
    "larger tokenizer later": (fits(61, 59, "generate"), LARGER),
    "smaller tokenizer in fit": (fits(59, 61, "fit"), SMALLER),
    "backbone": (
        lambda: M.DietTransformerSeq2SeqLM(3),
        "`backbone` must be a `DietTransformerBackbone`. Received: int",
    ),
    "preprocessor": (
        lambda: M.DietTransformerSeq2SeqLM(bb(), M.DietTransformerTokenizer(PROTOS(59))),
        "`preprocessor` must be a `DietTransformerSeq2SeqLMPreprocessor`",
    ),
}


@cases(GENERATE)
def test_generate(sent, message):
    assert_refused(sent, message)


def plot(layer):
    attention = analysis.CrossAttention(np.ones((2, 3, 1, 1)), ["a"], ["b"])
    return lambda: analysis.plot_cross_attention(attention, layer)


CROSS_ATTENTION = {
    "backbone": (
        lambda: analysis.cross_attention(bb(), "a", "b"),
        "`seq_2_seq_lm` must be a `DietTransformerSeq2SeqLM`. Received: DietTransformerBackbone",
    ),
    "no preprocessor": (
        lambda: analysis.cross_attention(task(), "a", "b"),
        "`seq_2_seq_lm` needs a preprocessor for texts. Received: preprocessor=None",
    ),
    "empty": (
        lambda: analysis.cross_attention(translator(), "", "b"),
        "`encoder_text` must hold texts that are not empty",
    ),
    "long source": (
        lambda: analysis.cross_attention(translator(), "the dog " * 40, "b"),
        "`encoder_text` must have at most 66 tokens, because encoder_sequence_length=67",
    ),
    "long target": (
        lambda: analysis.cross_attention(translator(), "a", "der Hund " * 9),
        "`decoder_text` must have at most 16 tokens, because decoder_sequence_length=17",
    ),
    "several": (
        lambda: analysis.cross_attention(translator(), ["a"], ["b"]),
        "`encoder_text` must be a string",
    ),
    "layer": (plot(2), "`layer` must be an integer below 2, ... Received: layer=2"),
    "layer -3": (plot(-3), "`layer` must be an integer below 2, ... Received: layer=-3"),
    "layer float": (plot(0.5), "`layer` must be an integer below 2, ... Received: layer=0.5"),
    "layer name": (plot("last"), "`layer` must be an integer below 2, ... layer='last'"),
}


@cases(CROSS_ATTENTION)
def test_cross_attention(sent, message):
    assert_refused(sent, message)
