"""From BERT to a `DietBertBackbone` with any of DIET's encodings."""

import os
from typing import Any

import keras
import numpy as np
from keras_hub.models import Backbone, BertBackbone, BertTokenizer, Task

from keras_diet import validation
from keras_diet._backend import float32_array
from keras_diet.models.diet_bert.hugging_face.checkpoint import Checkpoint, read_checkpoint
from keras_diet.models.diet_bert.hugging_face.tokenizer_files import (
    has_tokenizer,
    read_tokenizer_files,
)
from keras_diet.models.diet_bert.hugging_face.weights import backbone_of_checkpoint
from keras_diet.models.diet_bert.scores_of_bert import (
    InputEmbeddings,
    diagonal_means,
    head_orders,
    low_rank_factors,
    reorder_heads,
    scores_of_parts,
    scores_of_positions,
    shared_mean,
)
from keras_diet.types import DType

TARGETS = ("diet_abs", "diet_rel", "diet_abs_input", "input", "none")
_WITH_INPUT = ("input", "diet_abs_input")
_LIKE_BERT = {"position_encoding": "input", "segment_encoding": "input"}
_ARGUMENTS = (
    *("vocabulary_size", "num_layers", "num_heads", "hidden_dim", "intermediate_dim", "dropout"),
    *("max_sequence_length", "num_segments"),
)


def convert_bert(
    cls: type[keras.Model],
    bert: str | os.PathLike[str] | Backbone | Task | Any,
    position_encoding: str = "diet_abs",
    rank: int | None = None,
    sharing: str | None = None,
    segment_encoding: str | None = None,
    max_sequence_length: int | None = None,
    cls_token_id: int | None = None,
    *,
    dropout: float | None = None,
    attention_implementation: str = "auto",
    recompute: str = "none",
    dtype: DType = None,
    name: str | None = None,
    trainable: bool | None = None,
) -> Any:
    """Build a backbone from the weights of a trained BERT, or of another trained encoder.

    With `position_encoding="input"` the outputs are the outputs of that BERT. Otherwise the
    backbone is a start for training. Positions leave the input, and each layer and head gets the
    scores that positions alone have in BERT,

        B_ij = (p_i W_Q) . (p_j W_K) / sqrt(d_h)

    where `p_i` is the part of the hidden states that comes from position `i`. A bias of the encoder
    is added to them, as in MPNet and T5. Of rotary positions, `B_ij` has the scores of the mean
    query and the mean key of all tokens. The scores become
    `P_Q` and `P_K` (by a truncated singular value decomposition) or `R` (by the means of the
    diagonals). `E_S` gets the scores of segments in the same way. The means of the embeddings that
    leave the input are added to the token embeddings. The embedding of `[CLS]` gets the first
    position instead, where it always stands.

    Args:
        bert: A `keras_hub.models.BertBackbone`, a task with one, the address of a preset of one, a
            folder or a model of Hugging Face, as in `from_hugging_face`.
        position_encoding: `"diet_abs"`, `"diet_rel"`, `"input"`, `"none"`, or
            `"diet_abs_input"`, whose scores start at those of the encoder's bias, or at zero.
            Defaults to `"diet_abs"`.
        rank: As in the class. The scores have the rank of the head size. Defaults to `None`.
        sharing: As in the class. Shared parameters get the mean of the scores, times the share of
            the scores that the mean keeps. With layer-wise sharing, the heads are put into an order
            in which the layers are alike. Defaults to `None`, which means `"none"` for
            `"diet_abs"`, because it keeps the most of BERT, and the default of the class otherwise.
        segment_encoding: As in the class. Defaults to `None`, which means that of the encoder if
            positions stay at the input. Otherwise it means `"per-head"`, or `"none"` for an encoder
            without segments.
        max_sequence_length: int or `None`. Number of positions to keep, from the first position.
            Defaults to `None`, which means all positions of the BERT.
        cls_token_id: int or `None`. The token that starts every sequence. Defaults to `None`, which
            means `[CLS]` of the vocabulary in the folder, preset or task. A backbone and a model of
            `transformers` have no vocabulary, so no token is treated in this way.
        dropout: float or `None`. As in the class. Defaults to `None`, which means the BERT's.
        attention_implementation: As in the class. Defaults to `"auto"`.
        recompute: As in the class. Defaults to `"none"`.
        dtype: As in the class. Defaults to `None`, which means the BERT's policy, and Keras's
            global policy for a BERT of Hugging Face.
        name: As in the class.
        trainable: As in the class.

    Returns:
        A `DietBertBackbone`.

    Raises:
        ValueError: If `bert` is something else; if the encoding is not one of these, or is at the
            input where the encoder has other positions; or as in `from_hugging_face`.

    Example:

    ```python
    bert = keras_hub.models.BertBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16,
    )
    backbone = keras_diet.models.DietBertBackbone.from_bert(bert, "diet_abs")
    ```
    """
    validation.choice("position_encoding", position_encoding, TARGETS)
    if sharing is None and position_encoding == "diet_abs":
        sharing = "none"
    checkpoint = read_checkpoint(bert)
    if checkpoint is not None:
        # In float32, whatever the checkpoint has.
        original = backbone_of_checkpoint(cls, checkpoint, dtype="float32")
        policy = None
    else:
        original = copy_bert(cls, bert)
        policy = original.dtype_policy
    length = original.max_sequence_length if max_sequence_length is None else max_sequence_length
    embeddings = InputEmbeddings.of(original, length)
    with_input = position_encoding in _WITH_INPUT
    has_other = original.position_encoding != "input" and position_encoding == "input"
    if with_input and (embeddings.positions is None or has_other):
        raise ValueError(
            f"The encoder has other positions than {position_encoding!r}. Received: "
            f"position_encoding={original.position_encoding!r}. `from_hugging_face` keeps them. "
            "'diet_abs' and 'diet_rel' take their scores."
        )
    if segment_encoding is None:
        has_segments = original.segment_encoding == "input" and original.num_segments > 1
        segment_encoding = "per-head" if has_segments and not with_input else "none"
        if with_input:
            segment_encoding = original.segment_encoding
    if cls_token_id is None and embeddings.positions is not None and not with_input:
        cls_token_id = _find_cls_token_id(checkpoint or bert)
    changes = {
        "position_encoding": position_encoding,
        "rank": rank,
        "sharing": sharing,
        "segment_encoding": segment_encoding,
        "max_sequence_length": length,
        "dropout": original.dropout if dropout is None else dropout,
        "attention_implementation": attention_implementation,
        "recompute": recompute,
        "dtype": policy if dtype is None else dtype,
        "name": name,
        "trainable": trainable,
        # They belong to other positions.
        "max_distance": None,
        "max_wavelength": None,
        "rope_scaling": None,
        "first_position": original.first_position if with_input else None,
    }
    of_positions: list[Any] = []
    if original.position_encoding in ("deberta", "deberta_v1"):
        attentions = [block.self_attention for block in original.encoder.transformer_layers]
        of_positions = attentions[0].table.weights
        for attention in [each for each in attentions if not each.share_projections]:
            of_positions += [w for d in attention.position_denses.values() for w in d.weights]
        # There, the scale counts the terms of the scores.
        changes["attention_scale"] = attentions[0].score_scale
    backbone = cls.from_config({**original.get_config(), **changes})
    ids = {id(weight) for weight in of_positions}
    for new, old in zip(_kept_layers(backbone), _kept_layers(original), strict=True):
        new.set_weights([float32_array(each) for each in old.weights if id(each) not in ids])
    _set_inputs(backbone, embeddings, cls_token_id)
    if backbone.encoder.position_biases or backbone.encoder.segment_biases:
        _set_scores(backbone, original, embeddings)
    return backbone


def copy_bert(cls: type[keras.Model], bert: Any) -> keras.Model:
    """Return KerasHub's BERT as a backbone with the same weights in the same order.

    Args:
        cls: `DietBertBackbone`.
        bert: A `keras_hub.models.BertBackbone`, a task with one, or the address of a preset.
    """
    if isinstance(bert, (str, os.PathLike)):
        bert = BertBackbone.from_preset(os.fspath(bert))
    original = getattr(bert, "backbone", bert)
    if not isinstance(original, BertBackbone):
        raise ValueError(
            "`bert` must be a `keras_hub.models.BertBackbone`, a task with one, the address of a "
            "preset of one, a BERT of `transformers`, or a folder with Hugging Face's BERT. "
            f"Received: bert={bert!r}"
        )
    arguments = {name: getattr(original, name) for name in _ARGUMENTS}
    copy = cls(**arguments, **_LIKE_BERT, dtype=original.dtype_policy)
    copy.set_weights(original.get_weights())
    return copy


def _find_cls_token_id(bert: Any) -> int | None:
    """Return the id of `[CLS]`, or `None` if `bert` comes without a vocabulary."""
    if isinstance(bert, (str, os.PathLike)):
        try:
            return BertTokenizer.from_preset(os.fspath(bert)).cls_token_id
        except FileNotFoundError:
            # A preset of a backbone alone.
            return None
    if not isinstance(bert, Checkpoint):
        tokenizer = getattr(getattr(bert, "preprocessor", None), "tokenizer", None)
        return getattr(tokenizer, "cls_token_id", None)
    folder = bert.folder
    if folder is None or not has_tokenizer(folder):
        return None
    files = read_tokenizer_files(folder)
    return files.tokenizer.token_to_id(files.names.get("cls", files.names.get("bos", "[CLS]")))


def _kept_layers(backbone: keras.Model) -> list[keras.layers.Layer]:
    """Return the layers that are the same in the trained encoder and in DIET."""
    layers = [
        backbone.embeddings_layer_norm,
        backbone.embeddings_projection,
        *backbone.encoder.transformer_layers,
        backbone.encoder.output_layer_norm,
        backbone.pooled_dense,
    ]
    return [layer for layer in layers if layer is not None]


def _set_inputs(
    backbone: keras.Model, embeddings: InputEmbeddings, cls_token_id: int | None
) -> None:
    """Set the embeddings at the input. Add the means of those that leave it to the tokens."""
    tokens = embeddings.tokens.copy()
    if backbone.position_encoding in _WITH_INPUT:
        positions: Any = embeddings.positions
        rows = np.concatenate([embeddings.before_positions, positions])
        backbone.input_encoding.position_embedding.set_weights([rows])
    elif embeddings.positions is not None:
        tokens += embeddings.mean_position
        if cls_token_id is not None:
            tokens[cls_token_id] += embeddings.positions[0] - embeddings.mean_position
    if backbone.segment_encoding == "input":
        backbone.input_encoding.segment_embedding.set_weights([embeddings.segments])
    else:
        tokens += embeddings.segments.mean(axis=0)
    backbone.token_embedding.set_weights([tokens])


def _set_scores(backbone: keras.Model, original: keras.Model, embeddings: InputEmbeddings) -> None:
    """Set the scores of positions and segments, after reordering heads where layers share them."""
    positions = scores_of_positions(original, backbone.max_sequence_length)
    # If positions stay at the input, their scores are there already.
    if embeddings.positions is not None and backbone.position_encoding not in _WITH_INPUT:
        positions = positions + scores_of_parts(embeddings.position_parts(), original)
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


def _is_layer_wise(backbone: keras.Model) -> bool:
    return len(backbone.encoder.position_biases) == 1 and backbone.num_layers > 1


def _set_position_biases(backbone: keras.Model, scores: np.ndarray) -> None:
    """Approximate scores of shape `(num_layers, num_heads, n, n)` by the position biases."""
    generator = np.random.default_rng(0)
    if _is_layer_wise(backbone):
        scores = shared_mean(scores, axis=0)
    for bias, of_layer in zip(backbone.encoder.position_biases, scores, strict=False):
        if bias.share_heads:
            of_layer = shared_mean(of_layer, axis=0)
        if backbone.position_encoding == "diet_rel":
            bias.relative_embedding.assign(diagonal_means(of_layer))
            continue
        # Softmax ignores the mean of a row.
        of_layer = of_layer - of_layer.mean(axis=-1, keepdims=True)
        query, key = low_rank_factors(of_layer, bias.rank, generator)
        bias.query_embedding.assign(query)
        bias.key_embedding.assign(key)
