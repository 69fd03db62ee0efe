"""The score terms, plans and memories of the blocks of a decoder."""

from collections.abc import Iterator
from typing import Any

from keras import ops

from keras_diet.layers.attention.score_terms import ScoreTerms
from keras_diet.layers.transformer.stack_terms import terms_of_layers
from keras_diet.types import Tensor


def arguments_of_blocks(
    decoder: Any,
    inputs: Tensor,
    source: Tensor | None,
    memory: Any,
    terms: ScoreTerms,
    cross_terms: ScoreTerms,
    options: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """Yield the arguments of the call of each block, beside its inputs and options.

    Args:
        decoder: The `DietDecoder`.
        inputs: Hidden states `(B, T, hidden_dim)`.
        source: Output of an encoder, or `None` with a memory.
        memory: `DecoderMemory`, or `None`.
        terms: Masks of self-attention, and the position of the first token.
        cross_terms: The same for cross-attention.
        options: Arguments of the call of all blocks.
    """
    # Only the lengths of the keys are read.
    key, cross_key = None, source
    if memory is not None:
        key, cross_key = (ops.swapaxes(keys, 1, 2) for keys, _ in memory.of_block(0))
    options = {
        "implementation": decoder.attention_implementation,
        "reads_memory": memory is not None,
        **options,
    }
    blocks = decoder.transformer_layers
    attentions = [block.self_attention for block in blocks]
    cross_attentions = [block.cross_attention for block in blocks]
    of_layers = zip(
        terms_of_layers(inputs, terms, attentions, decoder.position_biases, key=key, **options),
        terms_of_layers(
            inputs,
            cross_terms,
            cross_attentions,
            decoder.cross_position_biases,
            key=cross_key,
            **options,
        ),
        strict=True,
    )
    for i, ((layer_terms, plan), (cross_layer_terms, cross_plan)) in enumerate(of_layers):
        yield {
            "score_terms": layer_terms,
            "attention_plan": plan,
            "cross_score_terms": cross_layer_terms,
            "cross_attention_plan": cross_plan,
            "memory": None if memory is None else memory.of_block(i),
        }
