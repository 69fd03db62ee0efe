"""Random weights with which a translator says something: its tokens change, and some are ends.

With usual random weights it repeats one token. Here attention is sharp, the constant terms are
small, and the last layer normalization changes signs, so that a token does not predict itself.
"""

import numpy as np


def varied_weight(name, shape, rng):
    """Values for a weight of the name that Keras or Marian gives it."""
    values = rng.normal(size=shape)
    if name.endswith(("bias", "beta")):
        return 0.03 * values
    if "layer_norm" in name:
        return (1 + 0.2 * values) * rng.choice([-1, 1], size=shape)
    if "embed" in name or "shared" in name:
        return 0.15 * values
    if "feedforward" in name or ".fc" in name:
        return 0.3 * values
    sharp = any(part in name for part in ("query", "key", "q_proj", "k_proj"))
    return (0.5 if sharp else 0.2) * values


def more_ends(embeddings, end_token_id):
    """Embeddings whose logits of the end token have twice the spread."""
    embeddings = np.array(embeddings)
    embeddings[end_token_id] *= 2
    return embeddings


def assert_varied(rows):
    """The rows of tokens differ from each other, and most have several tokens."""
    assert len({tuple(row) for row in rows}) == len(rows)
    assert np.median([len(set(row)) for row in rows]) >= 3


def generated(translator, inputs, sampler, end_token_id):
    """The tokens that follow the start token, for each source up to the end token."""
    translator.compile(sampler=sampler)
    output = translator.generate(inputs, stop_token_ids=(end_token_id,))
    rows = zip(output["decoder_token_ids"], output["decoder_padding_mask"], strict=True)
    return [row[mask.astype(bool)][1:].tolist() for row, mask in rows]
