"""What a stack of decoder blocks keeps from one step of decoding to the next."""

from typing import Any, NamedTuple

from keras import ops

from keras_diet._compat import get_keras_mask
from keras_diet.layers.attention.input_checks import check_masks
from keras_diet.layers.attention.key_memory import KeyMemory, repeat_rows
from keras_diet.layers.attention.score_terms import as_bool
from keras_diet.layers.transformer.biased_transformer_decoder import BlockMemory
from keras_diet.layers.transformer.decoder_checks import check_lengths, check_start
from keras_diet.types import Tensor


class DecoderMemory(NamedTuple):
    """The keys and values of all blocks of a `DietDecoder`, in tensors of fixed sizes.

    It is a nest of tensors, so it can be a variable of a compiled loop. Beam search reorders
    `target`. The other fields never change. There may be several targets for each source: with two,
    the first two targets belong to the first source.

    Attributes:
        target: For each block, keys and values of self-attention,
            `(num_targets, num_heads, length, size)`. Positions that are not decoded yet hold zeros.
        source: For each block, keys and values of cross-attention,
            `(num_sources, num_heads, S, size)`.
        source_padding_mask: Boolean tensor `(num_sources, S)`, `False` for padding of the source.
    """

    target: tuple[KeyMemory, ...]
    source: tuple[KeyMemory, ...]
    source_padding_mask: Tensor

    def of_block(self, index: int) -> BlockMemory:
        """Return the memory of one block."""
        return self.target[index], self.source[index]

    def padding_of_targets(self, num_targets: Any) -> Tensor:
        """Return the padding of the source of each target, `(num_targets, S)`."""
        return repeat_rows(self.source_padding_mask, num_targets)


def start_decoder_memory(
    decoder: Any,
    batch_size: Any,
    length: int,
    encoder_outputs: Tensor,
    encoder_padding_mask: Tensor | None = None,
) -> DecoderMemory:
    """Return the memory of a `DietDecoder` before the first step, with the keys of the source.

    Args:
        decoder: The decoder. It must be built.
        batch_size: int. Number of targets, a multiple of the number of sources. With two targets
            for each source, the first two targets belong to the first source.
        length: int. Number of positions of the target, at most `max_sequence_length`.
        encoder_outputs: Source of shape `(batch_size or fewer, S, source_dim)`.
        encoder_padding_mask: Boolean or 0/1 tensor like the first two axes of the source, `False`
            for padding. Defaults to the Keras mask of the source.
    """
    check_start(decoder, batch_size, length, encoder_outputs)
    check_lengths(decoder, length, encoder_outputs)
    num_sources, source_length = ops.shape(encoder_outputs)[:2]
    mask = encoder_padding_mask
    scores_shape = (num_sources, decoder.num_heads, length, source_length)
    check_masks(scores_shape, encoder_padding_mask=mask)
    if mask is None:
        mask = get_keras_mask(encoder_outputs)
    if mask is None:
        mask = ops.ones((num_sources, source_length), "bool")
    mask = ops.broadcast_to(as_bool(mask), (num_sources, source_length))
    pairs = [
        block.start_memory(batch_size, length, encoder_outputs)
        for block in decoder.transformer_layers
    ]
    return DecoderMemory(
        target=tuple(target for target, _ in pairs),
        source=tuple(source for _, source in pairs),
        source_padding_mask=mask,
    )
