"""One batch of translation, from token ids to token ids."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from keras_diet.types import Tensor


def generate_step(
    seq_2_seq_lm: Any, inputs: dict[str, Tensor], stop_token_ids: Sequence[int] | None = None
) -> dict[str, Tensor]:
    """Return the targets of a batch of sources. `generate` compiles it.

    The encoder runs once, and the keys and values of its output are computed once.

    Args:
        seq_2_seq_lm: A `DietTransformerSeq2SeqLM`.
        inputs: The backbone's dictionary. Each target begins with at least one token, and has
            room for the tokens that are generated.
        stop_token_ids: Tokens that end a target, or `None`.

    Returns:
        A dictionary with `"decoder_token_ids"`, and `"decoder_padding_mask"` that is true up to
        the end token.
    """
    backbone = seq_2_seq_lm.backbone
    source_mask = ops.cast(inputs["encoder_padding_mask"], "bool")
    prompt_mask = ops.cast(inputs["decoder_padding_mask"], "bool")
    prompt = inputs["decoder_token_ids"]
    memory = backbone.decoder.start_memory(
        *ops.shape(prompt),
        encoder_outputs=backbone.encode(inputs["encoder_token_ids"], source_mask),
        encoder_padding_mask=source_mask,
    )

    def next(prompt, target, index):
        last = ops.slice(prompt, [0, index - 1], [ops.shape(prompt)[0], 1])
        # All beams of a row read the same source, so the sampler need not repeat it.
        hidden_states, new = backbone.decode_step(last, memory.with_target(target), index - 1)
        logits = backbone.token_embedding(hidden_states, reverse=True)
        return logits[:, 0], hidden_states[:, 0], new.target

    token_ids = seq_2_seq_lm.sampler(
        next=next,
        prompt=prompt,
        cache=memory.target,
        index=1,
        mask=prompt_mask,
        stop_token_ids=stop_token_ids,
        model=seq_2_seq_lm,
    )
    return {
        "decoder_token_ids": token_ids,
        "decoder_padding_mask": _up_to_the_end(token_ids, prompt_mask, stop_token_ids or ()),
    }


def _up_to_the_end(token_ids, prompt_mask, stop_token_ids):
    """Return a mask that is true up to the first stop token after the prompt."""
    ends = ops.zeros_like(prompt_mask)
    for stop_token_id in stop_token_ids:
        ends = ops.logical_or(ends, ops.equal(token_ids, stop_token_id))
    ends = ops.cast(ops.logical_and(ends, ops.logical_not(prompt_mask)), "int32")
    return ops.equal(ops.cumsum(ends, axis=-1) - ends, 0)
