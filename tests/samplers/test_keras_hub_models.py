"""Beam search in `generate` of KerasHub's own models."""

import functools

import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_diet.samplers import BeamSearchSampler
from tests.helpers import to_numpy
from tests.samplers.reference import beam_search

VOCABULARY, LENGTH, STOPS = 11, 9, (1, 4)
SIZES = {"hidden_dim": 6, "intermediate_dim": 5, "max_sequence_length": LENGTH}
PROMPTS = [[2, 7], [2, 5, 3, 8], [2, 9, 9]]
SOURCES = [[3, 5, 7, 8], [10, 2, 6], [9, 3, 2, 5, 5, 7]]
HUB = keras_hub.models
# A model, and the prefix of the names of its targets.
MODELS = {
    "causal_lm": (lambda: HUB.GPT2CausalLM(HUB.GPT2Backbone(VOCABULARY, 2, 2, **SIZES)), ""),
    "seq2seq_lm": (
        lambda: HUB.BartSeq2SeqLM(HUB.BartBackbone(VOCABULARY, 1, 2, **SIZES)),
        "decoder_",
    ),
}


def padded(prompts, length=LENGTH, prefix=""):
    """Token ids and mask of a batch."""
    mask = np.arange(length) < np.array([[len(prompt)] for prompt in prompts])
    token_ids = np.zeros(mask.shape, "int32")
    token_ids[mask] = np.concatenate(prompts)
    return {f"{prefix}token_ids": token_ids, f"{prefix}padding_mask": mask.astype("int32")}


@pytest.mark.parametrize("name", MODELS)
def test_beams_are_those_of_the_definition(rng, name):
    make, prefix = MODELS[name]
    model = make()
    for weight in model.weights:
        # The next token depends on all tokens before.
        if len(weight.shape) > 1:
            weight.assign(rng.normal(scale=0.9, size=weight.shape))
    inputs, alpha = padded(PROMPTS, prefix=prefix), 0.9
    if prefix:
        inputs |= padded(SOURCES, 7, "encoder_")
    model.compile(sampler=BeamSearchSampler(3, alpha))
    output = model.generate(inputs, stop_token_ids=STOPS)
    # Zeros stand after the end token.
    actual = output[f"{prefix}token_ids"] * output[f"{prefix}padding_mask"]
    expected, differences = [], 0
    for row, prompt in enumerate(PROMPTS):
        log_probs_of = log_probs_of_model(model, inputs, row, prefix)
        beams = beam_search(log_probs_of, prompt, LENGTH, 3, alpha, STOPS)
        expected.append(list(beams[0][1]))
        greedy = beam_search(log_probs_of, prompt, LENGTH, 1, 0.0, STOPS)
        differences += beams[0][1] != greedy[0][1]
    np.testing.assert_array_equal(actual, padded(expected)["token_ids"])
    assert differences, "greedy search finds the same"


def log_probs_of_model(model, inputs, row, prefix):
    """The log-probabilities of one row from a full forward pass, without a cache."""

    @functools.cache
    def function(tokens):
        of_row = {name: value[row : row + 1] for name, value in inputs.items()}
        logits = model.predict_on_batch({**of_row, **padded([tokens], prefix=prefix)})
        return to_numpy(ops.log_softmax(ops.cast(logits[0, len(tokens) - 1], "float32")))

    return function
