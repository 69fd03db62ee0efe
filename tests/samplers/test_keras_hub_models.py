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
PROMPTS = [[2, 7], [2, 5, 3, 8], [2, 9, 9]]


def random_matrices(model, rng):
    """Weights for which the next token depends on all tokens before."""
    for weight in model.weights:
        if len(weight.shape) > 1:
            weight.assign(rng.normal(scale=0.9, size=weight.shape))
    return model


@pytest.fixture
def causal_lm(rng):
    backbone = keras_hub.models.GPT2Backbone(
        VOCABULARY, 2, 2, hidden_dim=6, intermediate_dim=5, max_sequence_length=LENGTH
    )
    return random_matrices(keras_hub.models.GPT2CausalLM(backbone), rng)


@pytest.fixture
def seq2seq_lm(rng):
    backbone = keras_hub.models.BartBackbone(
        VOCABULARY, 1, 2, hidden_dim=6, intermediate_dim=5, max_sequence_length=LENGTH
    )
    return random_matrices(keras_hub.models.BartSeq2SeqLM(backbone), rng)


def padded(prompts):
    token_ids = np.zeros((len(prompts), LENGTH), "int32")
    mask = np.zeros((len(prompts), LENGTH), "int32")
    for row, prompt in enumerate(prompts):
        token_ids[row, : len(prompt)] = prompt
        mask[row, : len(prompt)] = 1
    return token_ids, mask


def causal_inputs(prompts):
    token_ids, mask = padded(prompts)
    return {"token_ids": token_ids, "padding_mask": mask}


def seq2seq_inputs(prompts):
    sources, source_mask = padded([[3, 5, 7, 8], [10, 2, 6], [9, 3, 2, 5, 5, 7]][: len(prompts)])
    token_ids, mask = padded(prompts)
    return {
        "encoder_token_ids": sources[:, :7],
        "encoder_padding_mask": source_mask[:, :7],
        "decoder_token_ids": token_ids,
        "decoder_padding_mask": mask,
    }


CASES = {"causal_lm": (causal_inputs, ""), "seq2seq_lm": (seq2seq_inputs, "decoder_")}


def generate(model, inputs, prefix, sampler):
    """The generated tokens, with zeros after the end token."""
    model.compile(sampler=sampler)
    output = model.generate(inputs, stop_token_ids=STOPS)
    return output[prefix + "token_ids"] * output[prefix + "padding_mask"]


@pytest.mark.parametrize("case", CASES)
def test_one_beam_without_penalty_is_greedy(case, request):
    model, (make_inputs, prefix) = request.getfixturevalue(case), CASES[case]
    inputs = make_inputs(PROMPTS)
    expected = generate(model, inputs, prefix, keras_hub.samplers.GreedySampler())
    actual = generate(model, inputs, prefix, BeamSearchSampler(1, 0.0))
    np.testing.assert_array_equal(actual, expected)
    assert len({tuple(row) for row in expected[:, 4:]}) > 1


@pytest.mark.parametrize("case", CASES)
def test_beams_are_those_of_the_definition(case, request):
    model, (make_inputs, prefix) = request.getfixturevalue(case), CASES[case]
    inputs, num_beams, alpha = make_inputs(PROMPTS), 3, 0.9
    actual = generate(model, inputs, prefix, BeamSearchSampler(num_beams, alpha))
    expected, differences = [], 0
    for row, prompt in enumerate(PROMPTS):
        log_probs_of = log_probs_of_model(model, inputs, row, prefix)
        beams = beam_search(log_probs_of, prompt, LENGTH, num_beams, alpha, STOPS)
        expected.append(list(beams[0][1]))
        greedy = beam_search(log_probs_of, prompt, LENGTH, 1, 0.0, STOPS)
        differences += beams[0][1] != greedy[0][1]
    np.testing.assert_array_equal(actual, padded(expected)[0])
    assert differences, "greedy search finds the same"
    alone = {name: value[1:2] for name, value in inputs.items()}
    output = generate(model, alone, prefix, BeamSearchSampler(num_beams, alpha))
    np.testing.assert_array_equal(output[0], actual[1])


def log_probs_of_model(model, inputs, row, prefix):
    """The log-probabilities of one row from a full forward pass, without a cache."""

    @functools.cache
    def function(tokens):
        token_ids, mask = padded([tokens])
        inputs_of_row = {name: value[row : row + 1] for name, value in inputs.items()}
        inputs_of_row[prefix + "token_ids"] = token_ids
        inputs_of_row[prefix + "padding_mask"] = mask
        logits = model.predict_on_batch(inputs_of_row)[0, len(tokens) - 1]
        return to_numpy(ops.log_softmax(ops.cast(logits, "float32")))

    return function
