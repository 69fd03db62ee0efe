"""A Marian model of Hugging Face computes and generates the same as ours with its weights."""

import numpy as np
import pytest

from examples.paper.marian import read_marian
from keras_diet.models import DietTransformerSeq2SeqLM
from keras_diet.samplers import BeamSearchSampler
from tests.helpers import once, to_numpy
from tests.models.diet_transformer.varied_weights import (
    assert_varied,
    generated,
    more_ends,
    varied_weight,
)

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# The special tokens have unusual ids.
VOCABULARY, END, PAD, LENGTH = 41, 5, 3, 23
BEAMS = {"num_beams": 4, "length_penalty": 0.0, "early_stopping": "never"}


def make_marian(seed, activation):
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=LENGTH,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=29,
        decoder_ffn_dim=29,
        d_model=36,
        activation_function=activation,
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
    )
    model = transformers.MarianMTModel(config).eval()
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:
                values = varied_weight(name, tuple(weight.shape), rng)
                values = more_ends(values, END) if name == "model.shared.weight" else values
                weight.copy_(torch.tensor(values))
    return model


def up_to_the_end(row):
    return row[: row.index(END) + 1] if END in row else row


@pytest.mark.parametrize(
    "seed, activation", [(25, "swish"), *once((67, "relu"), (43, "gelu"))], ids=str
)
def test_logits_and_translations(rng, seed, activation):
    """Both beam searches add log-probabilities, and stop when no live sequence can win any more."""
    marian = make_marian(seed, activation)
    translator = DietTransformerSeq2SeqLM(read_marian(marian))
    layer_norm = marian.model.encoder.layers[0].self_attn_layer_norm
    assert translator.backbone.layer_norm_epsilon == layer_norm.eps
    # Sources of several lengths with end tokens.
    lengths, positions = np.array([[11], [4], [7], [13], [2], [9]]), np.arange(13)
    token_ids = rng.integers(6, VOCABULARY, (6, 13))
    token_ids = np.where(positions == lengths - 1, END, token_ids)
    mask = (positions < lengths).astype("int32")
    token_ids = np.where(mask, token_ids, PAD).astype("int32")
    targets = rng.integers(6, VOCABULARY, (6, LENGTH)).astype("int32")
    inputs = {"encoder_token_ids": token_ids, "encoder_padding_mask": mask}
    inputs |= {"decoder_token_ids": targets, "decoder_padding_mask": np.ones_like(targets)}
    source = {"input_ids": torch.tensor(token_ids), "attention_mask": torch.tensor(mask)}
    with torch.no_grad():
        expected = marian(**source, decoder_input_ids=torch.tensor(targets)).logits.numpy()
    assert expected.std() > 0.5
    np.testing.assert_allclose(to_numpy(translator(inputs)), expected, rtol=1e-4, atol=1e-4)
    inputs["decoder_token_ids"] = np.full_like(targets, PAD)
    inputs["decoder_padding_mask"] = (np.arange(LENGTH) < np.ones_like(targets)).astype("int32")
    for sampler, options in (("greedy", {"num_beams": 1}), (BeamSearchSampler(4, 0.0), BEAMS)):
        with torch.no_grad():
            rows = marian.generate(**source, max_new_tokens=LENGTH - 1, do_sample=False, **options)
        theirs = [up_to_the_end(row[1:]) for row in rows.tolist()]
        if sampler == "greedy":
            assert_varied(theirs)
        assert generated(translator, inputs, sampler, END) == theirs
