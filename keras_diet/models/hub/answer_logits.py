"""Which positions of a window may be the start or the end of an answer."""

from keras import ops

from keras_diet.types import Tensor

# The logit of all other positions. Their probability is zero, also in half precision.
EXCLUDED = -1e9


def mask_answer_logits(logits: Tensor, segment_ids: Tensor, padding_mask: Tensor) -> Tensor:
    """Return logits in float32, with -1e9 at all positions that cannot begin or end an answer.

    An answer may begin and end at `[CLS]`, the first position, and at the tokens of the context.
    These are the tokens of the second segment, except the last one, `[SEP]`.

    Args:
        logits: Tensor of shape `(B, T)`.
        segment_ids: Integers of shape `(B, T)`: 1 for context and its `[SEP]`.
        padding_mask: Booleans or integers of shape `(B, T)`.
    """
    padding_mask = ops.cast(padding_mask, "bool")
    # `[SEP]` is the token that no other token follows.
    next_mask = ops.concatenate([padding_mask[:, 1:], ops.zeros_like(padding_mask[:, :1])], axis=1)
    is_context = ops.logical_and(ops.equal(segment_ids, 1), next_mask)
    is_allowed = ops.concatenate([ops.ones_like(is_context[:, :1]), is_context[:, 1:]], axis=1)
    return ops.where(is_allowed, ops.cast(logits, "float32"), EXCLUDED)
