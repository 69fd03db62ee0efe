"""From BERT to a `DietBertBackbone` with any of DIET's encodings."""

import numbers

import numpy as np

from keras_diet import validation
from keras_diet.models.diet_bert.from_bert.align_heads import head_orders, reorder_heads
from keras_diet.models.diet_bert.from_bert.factorize import diagonal_means, low_rank_factors
from keras_diet.models.diet_bert.from_bert.read_bert import read_bert
from keras_diet.models.diet_bert.from_bert.score_terms import InputEmbeddings, scores_of_parts

POSITION_ENCODINGS = ("diet_abs", "diet_rel", "diet_abs_input", "input", "none")
_WITH_INPUT = ("input", "diet_abs_input")


def convert_bert(
    backbone_class,
    bert,
    position_encoding,
    rank,
    sharing,
    segment_encoding,
    max_sequence_length,
    cls_token_id,
    dropout=None,
    attention_implementation="auto",
    dtype=None,
    name=None,
    trainable=None,
):
    """Return a backbone as `DietBertBackbone.from_bert`, whose arguments these are."""
    validation.choice("position_encoding", position_encoding, POSITION_ENCODINGS)
    if segment_encoding is None:
        segment_encoding = "input" if position_encoding in _WITH_INPUT else "per-head"
    original, read_cls_token_id, policy = read_bert(backbone_class, bert)
    length = _length(max_sequence_length, original.max_sequence_length)
    cls_token_id = _cls_token_id(cls_token_id, read_cls_token_id, original.vocabulary_size)
    backbone = backbone_class(
        **{
            **original.get_config(),
            "position_encoding": position_encoding,
            "rank": rank,
            "sharing": sharing,
            "segment_encoding": segment_encoding,
            "max_sequence_length": length,
            "dropout": original.dropout if dropout is None else dropout,
            "attention_implementation": attention_implementation,
            "dtype": policy if dtype is None else dtype,
            "name": name,
            "trainable": trainable,
        }
    )
    for ours, berts in zip(_kept_layers(backbone), _kept_layers(original), strict=True):
        ours.set_weights(berts.get_weights())
    embeddings = InputEmbeddings.of(original, length)
    _set_inputs(backbone, embeddings, cls_token_id)
    if backbone.encoder.position_biases or backbone.encoder.segment_biases:
        _set_scores(backbone, original, embeddings)
    return backbone


def _set_scores(backbone, original, embeddings):
    """Set what positions and segments add to the scores, with the heads in a fitting order."""
    positions = scores_of_parts(embeddings.position_parts(), original)
    segments = scores_of_parts(embeddings.segment_parts(), original)
    if _is_layer_wise(backbone):
        orders = head_orders(positions)
        for i, (block, order) in enumerate(
            zip(backbone.encoder.transformer_layers, orders, strict=True)
        ):
            reorder_heads(block.self_attention, order)
            positions[i], segments[i] = positions[i, order], segments[i, order]
    _set_position_biases(backbone, positions)
    for bias, scores in zip(backbone.encoder.segment_biases, segments, strict=False):
        bias.segment_embedding.assign(scores)


def _length(max_sequence_length, longest):
    if max_sequence_length is None:
        return longest
    length = validation.positive_int("max_sequence_length", max_sequence_length)
    if length > longest:
        raise ValueError(
            "`max_sequence_length` must not exceed the positions that the BERT has learned; use "
            "`extend_positions` on the model for more. "
            f"Received: max_sequence_length={length}, where the BERT has {longest}"
        )
    return length


def _cls_token_id(given, read, vocabulary_size):
    if given is None:
        return read
    is_integer = isinstance(given, numbers.Integral) and not isinstance(given, bool)
    if not is_integer or not 0 <= given < vocabulary_size:
        raise ValueError(
            f"`cls_token_id` must be an integer in [0, {vocabulary_size}). "
            f"Received: cls_token_id={given!r}"
        )
    return int(given)


def _kept_layers(backbone):
    """Return the layers that DIET leaves as they are."""
    return [
        backbone.embeddings_layer_norm,
        *backbone.encoder.transformer_layers,
        backbone.pooled_dense,
    ]


def _set_inputs(backbone, embeddings, cls_token_id):
    """Set what is at the input, and fold the mean of what leaves it into the tokens."""
    tokens = embeddings.tokens.copy()
    if backbone.position_encoding in _WITH_INPUT:
        backbone.input_encoding.position_embedding.set_weights([embeddings.positions])
    else:
        tokens += embeddings.mean_position
        if cls_token_id is not None:
            # It always has the first position.
            tokens[cls_token_id] += embeddings.positions[0] - embeddings.mean_position
    if backbone.segment_encoding == "input":
        backbone.input_encoding.segment_embedding.set_weights([embeddings.segments])
    else:
        tokens += embeddings.segments.mean(axis=0)
    backbone.token_embedding.set_weights([tokens])


def _is_layer_wise(backbone):
    return len(backbone.encoder.position_biases) == 1 and backbone.num_layers > 1


def _shared(scores, axis):
    """Return the mean of scores along an axis, which is kept, times the share that it keeps.

    The more they differ the less their mean is to be trusted: where softmax is, scores that are
    wrong cost more than scores that are missing.
    """
    mean = scores.mean(axis=axis, keepdims=True)
    return mean * np.sum(mean**2) * scores.shape[axis] / max(np.sum(scores**2), 1e-12)


def _set_position_biases(backbone, scores):
    """Give scores `(num_layers, num_heads, n, n)` to the position biases, as near as they come."""
    generator = np.random.default_rng(0)
    biases = backbone.encoder.position_biases
    if _is_layer_wise(backbone):
        scores = _shared(scores, axis=0)
    if backbone.position_encoding == "diet_abs_input":
        # The positions at the input score already.
        scores = np.zeros_like(scores)
    for bias, of_layer in zip(biases, scores, strict=False):
        if bias.share_heads:
            of_layer = _shared(of_layer, axis=0)
        if backbone.position_encoding == "diet_rel":
            bias.relative_embedding.assign(diagonal_means(of_layer))
            continue
        query, key = low_rank_factors(of_layer, bias.rank, generator)
        bias.query_embedding.assign(query)
        bias.key_embedding.assign(key)
