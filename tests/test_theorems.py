"""The two theorems of the paper (section 2.3 and appendix B), checked on models with numbers."""

import numpy as np
import pytest

from keras_diet import analysis
from tests.helpers import gradients, random_loss, randomize, to_numpy
from tests.models.tiny import tiny_backbone

# The scores and gradients are equal on all backends, as other tests show.
pytestmark = pytest.mark.any_backend
NUM_LAYERS, NUM_HEADS, BATCH, VOCABULARY = 2, 2, 3, 97


def make_backbone(rng, length, head_dim, **arguments):
    backbone = tiny_backbone(
        vocabulary_size=VOCABULARY,
        num_heads=NUM_HEADS,
        hidden_dim=NUM_HEADS * head_dim,
        max_sequence_length=length,
        segment_encoding="none",
        **arguments,
    )
    return randomize(backbone, rng)


def inputs_of(token_ids):
    return {
        "token_ids": token_ids.astype("int32"),
        "segment_ids": np.zeros(token_ids.shape, "int32"),
        "padding_mask": np.ones(token_ids.shape, "int32"),
    }


# Length n, head size d_h and rank d_p, with n >= d_h + d_p, and d_h below or above d_p.
@pytest.mark.parametrize("length, head_dim, rank", [(23, 3, 11), (31, 13, 2)])
@pytest.mark.parametrize("position_encoding", ["input", "diet_abs"])
def test_theorem_1(rng, position_encoding, length, head_dim, rank):
    is_diet = position_encoding == "diet_abs"
    arguments = {"position_encoding": position_encoding, "rank": rank if is_diet else None}
    backbone = make_backbone(rng, length, head_dim, **arguments)
    inputs = inputs_of(rng.integers(VOCABULARY, size=(BATCH, length)))
    ranks = analysis.numerical_rank(analysis.attention_scores(backbone, inputs))
    assert ranks.shape == (NUM_LAYERS, BATCH, NUM_HEADS)
    bound = head_dim + rank if is_diet else head_dim
    assert np.all(ranks <= bound)
    # The first layer reaches the bound: its inputs have full rank.
    assert np.all(ranks[0] == bound)


def embedding_gradients(rng, position_encoding):
    """Gradients of the token and the position embeddings, each `(length, hidden_dim)`.

    Every position has another token, so each row of both gradients belongs to one position.
    """
    length, head_dim = 11, 5
    backbone = make_backbone(rng, length, head_dim, position_encoding=position_encoding)
    token_ids = rng.permutation(VOCABULARY)[None, :length]
    inputs = inputs_of(token_ids)
    positions = (
        backbone.encoder.position_biases[0].query_embedding
        if position_encoding == "diet_abs"
        else backbone.input_encoding.position_embedding.position_embeddings
    )
    loss = random_loss(lambda: backbone(inputs)["sequence_output"], rng)
    tokens, positions = gradients(loss, [backbone.token_embedding.embeddings, positions])
    return to_numpy(tokens)[token_ids[0]], to_numpy(positions).reshape(length, -1)


@pytest.mark.parametrize("position_encoding", ["input", "diet_abs_input"])
def test_theorem_2(rng, position_encoding):
    tokens, positions = embedding_gradients(rng, position_encoding)
    assert np.abs(tokens).max() > 0.03
    np.testing.assert_allclose(positions, tokens, atol=1e-6)


def test_theorem_2_does_not_hold_for_diet(rng):
    # The rank is the head size, so that both gradients have the same shape.
    tokens, positions = embedding_gradients(rng, "diet_abs")
    assert tokens.shape == positions.shape
    assert np.abs(positions).max() > 1e-3
    cosine = np.sum(tokens * positions) / np.linalg.norm(tokens) / np.linalg.norm(positions)
    assert abs(cosine) < 0.5
