"""Small DietTransformer models and inputs. All sizes differ, so that a swapped axis fails."""

import functools

import numpy as np

from keras_diet.models import (
    DietTransformerBackbone,
    DietTransformerSeq2SeqLM,
    DietTransformerSeq2SeqLMPreprocessor,
    DietTransformerTokenizer,
)
from tests.models.diet_transformer.pairs import SOURCES, TARGETS
from tests.models.tiny import SIZES, randomize_weights

SOURCE_LENGTH, TARGET_LENGTH = 11, 7
START = 1


@functools.cache
def proto():
    """A SentencePiece model of 61 tokens with default special tokens."""
    return DietTransformerTokenizer.from_texts(SOURCES + TARGETS, vocabulary_size=61).proto


def tiny_backbone(**arguments):
    """A backbone of `SIZES`, without dropout, with `arguments` on top."""
    return DietTransformerBackbone(**{**SIZES, "dropout": 0.0, **arguments})


def tiny_task(**arguments):
    """A task without a preprocessor and with random weights; `arguments` are the backbone's."""
    return with_random_weights(DietTransformerSeq2SeqLM(tiny_backbone(**arguments)))


def with_random_weights(task):
    """Give all weights random values: kernels so large that tokens depend on all that is before."""
    for weight in randomize_weights(task).weights:
        if weight.path.endswith("kernel"):
            weight.assign(2.0 * weight)
        elif weight.path.endswith(("bias", "beta")):
            weight.assign(0.2 * weight)
    return task


def tiny_translator(proto, backbone=(), **arguments):
    """A task with a preprocessor of 61 tokens; `arguments` are the preprocessor's."""
    lengths = {"encoder_sequence_length": 67, "decoder_sequence_length": 17}
    sizes = {"vocabulary_size": 61, "num_layers": 1, "max_sequence_length": 71}
    preprocessor = DietTransformerSeq2SeqLMPreprocessor(
        DietTransformerTokenizer(proto), **{**lengths, **arguments}
    )
    return with_random_weights(
        DietTransformerSeq2SeqLM(tiny_backbone(**{**sizes, **dict(backbone)}), preprocessor)
    )


def random_inputs(rng, batch_size=2, source_length=SOURCE_LENGTH, target_length=TARGET_LENGTH):
    """Inputs of a backbone. The last source and the first target are full, others are shorter."""
    inputs = {}
    for side, length, step in (("encoder", source_length, 3), ("decoder", target_length, 2)):
        missing = step * np.arange(batch_size)
        valid = np.maximum(length - (missing[::-1] if side == "encoder" else missing), 1)
        mask = np.arange(length) < valid[:, None]
        token_ids = rng.integers(1, SIZES["vocabulary_size"], mask.shape)
        inputs[f"{side}_token_ids"] = np.where(mask, token_ids, 0).astype("int32")
        inputs[f"{side}_padding_mask"] = mask.astype("int32")
    return inputs


def prompts(inputs, lengths=(1,)):
    """The same sources with targets of which only the first tokens are given."""
    token_ids = np.array(inputs["decoder_token_ids"])
    token_ids[:, 0] = START
    given = np.arange(token_ids.shape[1]) < np.array(lengths)[:, None]
    given = np.broadcast_to(given, token_ids.shape)
    return {
        **inputs,
        "decoder_token_ids": np.where(given, token_ids, 0).astype("int32"),
        "decoder_padding_mask": given.astype("int32"),
    }


def rows(inputs, *indices):
    """Some rows of a batch."""
    return {name: value[list(indices)] for name, value in inputs.items()}
