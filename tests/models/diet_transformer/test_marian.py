"""A Marian model of Hugging Face computes and generates the same as ours with its weights."""

import numpy as np
import pytest

from benchmarks.marian import read_marian
from keras_diet.models import DietTransformerSeq2SeqLM
from keras_diet.samplers import BeamSearchSampler
from tests.helpers import to_numpy
from tests.models.diet_transformer.varied_weights import assert_varied, more_ends, varied_weight

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VOCABULARY, END, PAD, LENGTH = 41, 5, 3, 23
BEAMS = 4
BEAM_OPTIONS = {"num_beams": BEAMS, "length_penalty": 0.0, "early_stopping": "never"}


def make_marian(seed, activation):
    """A Marian model whose special tokens have unusual ids."""
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


@pytest.fixture(
    params=[
        (25, "swish"),
        pytest.param((67, "relu"), marks=pytest.mark.any_backend),
        pytest.param((43, "gelu"), marks=pytest.mark.any_backend),
    ],
    ids=str,
)
def models(request):
    marian = make_marian(*request.param)
    backbone = read_marian(marian)
    layer_norm = marian.model.encoder.layers[0].self_attn_layer_norm
    assert backbone.layer_norm_epsilon == layer_norm.eps
    return marian, DietTransformerSeq2SeqLM(backbone)


@pytest.fixture
def sources(rng):
    """Sources of several lengths with end tokens, and their mask."""
    lengths = np.array([[11], [4], [7], [13], [2], [9]])
    token_ids = rng.integers(6, VOCABULARY, (len(lengths), 13))
    positions = np.arange(13)
    token_ids = np.where(positions == lengths - 1, END, token_ids)
    mask = positions < lengths
    return np.where(mask, token_ids, PAD).astype("int32"), mask.astype("int32")


def ours(translator, sources, sampler):
    """The generated tokens of each source, with the end token."""
    token_ids, mask = sources
    prompt = np.full((len(token_ids), LENGTH), PAD, "int32")
    translator.compile(sampler=sampler)
    output = translator.generate(
        {
            "encoder_token_ids": token_ids,
            "encoder_padding_mask": mask,
            "decoder_token_ids": prompt,
            "decoder_padding_mask": np.arange(LENGTH) < np.ones_like(prompt),
        },
        stop_token_ids=(END,),
    )
    rows = zip(output["decoder_token_ids"], output["decoder_padding_mask"], strict=True)
    return [row[row_mask.astype(bool)][1:].tolist() for row, row_mask in rows]


def theirs(marian, sources, **options):
    token_ids, mask = (torch.tensor(each) for each in sources)
    with torch.no_grad():
        rows = marian.generate(
            token_ids,
            attention_mask=mask,
            max_new_tokens=LENGTH - 1,
            do_sample=False,
            **options,
        )
    return [up_to_the_end(row[1:]) for row in rows.tolist()]


def up_to_the_end(row):
    return row[: row.index(END) + 1] if END in row else row


def test_logits(models, sources, rng):
    marian, translator = models
    token_ids, mask = sources
    targets = rng.integers(6, VOCABULARY, (len(token_ids), LENGTH)).astype("int32")
    actual = translator(
        {
            "encoder_token_ids": token_ids,
            "encoder_padding_mask": mask,
            "decoder_token_ids": targets,
            "decoder_padding_mask": np.ones_like(targets),
        }
    )
    with torch.no_grad():
        expected = marian(
            input_ids=torch.tensor(token_ids),
            attention_mask=torch.tensor(mask),
            decoder_input_ids=torch.tensor(targets),
        ).logits.numpy()
    assert expected.std() > 0.5
    np.testing.assert_allclose(to_numpy(actual), expected, rtol=1e-4, atol=1e-4)


def test_greedy_tokens(models, sources):
    marian, translator = models
    expected = theirs(marian, sources, num_beams=1)
    assert_varied(expected)
    assert ours(translator, sources, "greedy") == expected


def test_beam_search(models, sources):
    """Both add log-probabilities, and stop when no live sequence can win any more."""
    marian, translator = models
    expected = theirs(marian, sources, **BEAM_OPTIONS)
    assert ours(translator, sources, BeamSearchSampler(BEAMS, length_penalty=0.0)) == expected
