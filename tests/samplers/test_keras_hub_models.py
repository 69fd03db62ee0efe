"""Beam search in `generate` of a model of KerasHub."""

import functools

import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_diet.samplers import BeamSearchSampler
from tests.helpers import to_numpy
from tests.samplers.reference import beam_search
from tests.samplers.tables import padded

VOCABULARY, LENGTH, STOPS = 11, 9, (1, 4)
PROMPTS = [[2, 7], [2, 5, 3, 8], [2, 9, 9]]


def inputs_of(prompts):
    token_ids, mask = padded(prompts, LENGTH)
    return {"token_ids": token_ids, "padding_mask": mask.astype("int32")}


# `test_beam_search_sampler.py` compiles searches on each backend.
@pytest.mark.any_backend
def test_beams_are_those_of_the_definition(rng):
    sizes = {"hidden_dim": 6, "intermediate_dim": 5, "max_sequence_length": LENGTH}
    model = keras_hub.models.GPT2CausalLM(keras_hub.models.GPT2Backbone(VOCABULARY, 2, 2, **sizes))
    for weight in model.weights:
        # The next token depends on all tokens before.
        if len(weight.shape) > 1:
            weight.assign(rng.normal(scale=0.9, size=weight.shape))

    @functools.cache
    def log_probs_of(tokens):
        """From a full forward pass, without a cache."""
        logits = model.predict_on_batch(inputs_of([tokens]))[0, len(tokens) - 1]
        return to_numpy(ops.log_softmax(ops.cast(logits, "float32")))

    model.compile(sampler=BeamSearchSampler(3, 0.9))
    output = model.generate(inputs_of(PROMPTS), stop_token_ids=STOPS)
    # Zeros stand after the end token.
    actual = output["token_ids"] * output["padding_mask"]
    expected, greedy = (
        [beam_search(log_probs_of, each, LENGTH, beams, alpha, STOPS)[0][1] for each in PROMPTS]
        for beams, alpha in ((3, 0.9), (1, 0.0))
    )
    np.testing.assert_array_equal(actual, inputs_of(expected)["token_ids"])
    assert expected != greedy
