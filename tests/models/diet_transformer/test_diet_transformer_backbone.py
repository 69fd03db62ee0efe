"""`DietTransformerBackbone`: the inputs of its stacks, its gradients, and its initial weights.

`tests/layers/transformer` has the stacks, and `tests/models/test_backbones.py` what both backbones
keep.
"""

import numpy as np
import pytest
from keras import ops

from tests import reference
from tests.helpers import assert_close, gradients, random_loss, to_numpy
from tests.models.diet_transformer.tiny import TARGET_LENGTH, random_inputs, tiny_backbone
from tests.models.tiny import randomize_weights

pytestmark = pytest.mark.any_backend
# Encodings, arrangements of blocks, and lengths of sources and targets.
SPECIFICATIONS = {
    "default": {},
    "diet_abs": {"position_encoding": "diet_abs", "rank": 7, "normalize_first": False},
    "shaw": {"position_encoding": "shaw", "max_distance": 4, "activation": "tanh"},
    "sinusoidal": {"position_encoding": "sinusoidal", "lengths": (1, 1)},
    "input": {"position_encoding": "input", "normalize_first": False, "lengths": (3, 13)},
    "diet_abs_input": {"position_encoding": "diet_abs_input", "lengths": (13, 2)},
}


def specified(name, rng):
    """A backbone with random weights, and inputs."""
    arguments = dict(SPECIFICATIONS[name])
    inputs = random_inputs(rng, 2, *arguments.pop("lengths", ()))
    return randomize_weights(tiny_backbone(**arguments)), inputs


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_outputs_are_those_of_the_stacks_for_the_embeddings(rng, name):
    backbone, inputs = specified(name, rng)
    embedding = to_numpy(backbone.token_embedding.embeddings)

    def embed(side):
        token_ids = inputs[f"{side}_token_ids"]
        x = embedding[token_ids] * np.sqrt(backbone.hidden_dim)
        if name == "sinusoidal":
            x = x + reference.sinusoidal_positions(token_ids.shape[1], backbone.hidden_dim)
        elif name.endswith("input"):
            layer = getattr(backbone, f"{side}_input_encoding").position_embedding
            x = x + to_numpy(layer.position_embeddings)[: token_ids.shape[1]]
        return x.astype("float32")

    of_source, of_target = (inputs[f"{side}_padding_mask"] for side in ("encoder", "decoder"))
    source = backbone.encoder(embed("encoder"), padding_mask=of_source)
    masks = {"padding_mask": of_target, "encoder_padding_mask": of_source}
    target = backbone.decoder(embed("decoder"), source, **masks)
    outputs = backbone(inputs)
    assert set(outputs) == {"encoder_sequence_output", "decoder_sequence_output"}
    assert_close(outputs["encoder_sequence_output"], source)
    assert_close(outputs["decoder_sequence_output"], target)


def test_steps_equal_the_full_pass(rng):
    backbone = randomize_weights(tiny_backbone(position_encoding="diet_abs_input"))
    inputs = random_inputs(rng)
    source_mask = ops.convert_to_tensor(inputs["encoder_padding_mask"])
    source = backbone.encode(inputs["encoder_token_ids"], source_mask)
    memory = backbone.decoder.start_memory(2, TARGET_LENGTH, source, source_mask)
    outputs = []
    for start, end in ((0, 2), (2, 3), (3, 7)):
        token_ids = inputs["decoder_token_ids"][:, start:end]
        output, memory = backbone.decode_step(token_ids, memory, start)
        outputs.append(output)
    inputs["decoder_padding_mask"][:] = 1
    expected = backbone(inputs)["decoder_sequence_output"]
    assert_close(ops.concatenate(outputs, axis=1), expected)


@pytest.mark.parametrize("name", ["default", "diet_abs", "shaw", "input"])
def test_every_weight_has_a_gradient(rng, name):
    """Except key biases, which softmax removes."""
    backbone, inputs = specified(name, rng)
    loss = random_loss(lambda: backbone(inputs)["decoder_sequence_output"], rng)
    weights = backbone.trainable_weights
    for weight, gradient in zip(weights, gradients(loss, weights), strict=True):
        unused = weight.path.endswith("key/bias")
        assert (np.abs(gradient).max() > 1e-4) != unused, weight.path


@pytest.mark.usefixtures("keras_initializers")
def test_initial_embeddings_have_the_scale_of_the_positions():
    """`sqrt(d) E` has deviation 1, and logits of normalized hidden states too."""
    embeddings = to_numpy(tiny_backbone(vocabulary_size=1009).token_embedding.embeddings)
    assert embeddings.std() == pytest.approx(15**-0.5, rel=0.02)


def test_embeddings_are_dropped_in_training(rng):
    backbone = tiny_backbone(dropout=0.3)
    token_ids = rng.integers(1, 31, (19, 13))
    for training, rate in ((True, 0.3), (False, 0.0), (None, 0.0)):
        x = to_numpy(backbone.embed(token_ids, None, training=training))
        assert np.mean(x == 0) == pytest.approx(rate, abs=0.04)
