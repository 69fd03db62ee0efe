"""`DietBertBackbone.from_bert`: exact where it can be, the documented start where it cannot."""

import itertools

import keras_hub
import numpy as np
import pytest

from keras_diet import analysis
from keras_diet.models import DietBertBackbone
from keras_diet.models.diet_bert.scores_of_bert import head_orders, low_rank_factors
from tests.helpers import assert_all_close, assert_close, every_backend, once, to_numpy
from tests.models.tiny import (
    AT_INPUT,
    SIZES,
    VOCABULARY,
    random_inputs,
    randomize_weights,
    tiny_backbone,
)

pytestmark = pytest.mark.any_backend
LAYERS, HEADS, HEAD_DIM, LENGTH = 2, 3, 5, SIZES["max_sequence_length"]
CLS = VOCABULARY.index("[CLS]")


@pytest.fixture(scope="module")
def bert():
    return randomize_weights(keras_hub.models.BertBackbone(**SIZES))


@pytest.fixture(scope="module")
def weights(bert):
    return {weight.path: to_numpy(weight) for weight in bert.weights}


def expected_parts(embeddings, mean, weights, first_is_cls):
    """The part of the hidden states that comes from each position or segment, by loops."""
    position = weights["position_embedding/embeddings"][1:].mean(axis=0)
    segment = weights["segment_embedding/embeddings"].mean(axis=0)
    parts = [row - mean for row in embeddings]
    if first_is_cls:
        parts[0] = np.zeros_like(mean)
    variances = [np.var(row + position + segment) for row in weights["token_embedding/embeddings"]]
    sigma = np.sqrt(np.mean(variances) + np.mean([np.var(part) for part in parts]))
    gamma = weights["embeddings_layer_norm/gamma"]
    return [gamma * (part - np.mean(part)) / sigma for part in parts]


def expected_scores(parts, weights):
    """What the parts score in each layer and head, by loops; rows have a mean of zero."""
    scores = np.zeros((LAYERS, HEADS, len(parts), len(parts)))
    for layer in range(LAYERS):
        path = f"transformer_layer_{layer}/self_attention_layer"
        for head in range(HEADS):
            query = weights[f"{path}/query/kernel"][:, head]
            key = weights[f"{path}/key/kernel"][:, head]
            for i, query_part in enumerate(parts):
                row = [(query_part @ query) @ (part @ key) / HEAD_DIM**0.5 for part in parts]
                scores[layer, head, i] = row - np.mean(row)
    return scores


@pytest.fixture(scope="module")
def scores(weights):
    positions = weights["position_embedding/embeddings"]
    parts = expected_parts(positions, positions[1:].mean(axis=0), weights, first_is_cls=True)
    return expected_scores(parts, weights)


# === The outputs of BERT ===


@every_backend
@pytest.mark.parametrize("encoding", ["input", *once("diet_abs_input")])
def test_positions_at_the_input_give_the_outputs_of_kerashubs_bert(rng, bert, encoding):
    backbone = DietBertBackbone.from_bert(bert, encoding, segment_encoding="input", dropout=0.0)
    inputs = random_inputs(rng)
    assert_all_close(backbone(inputs), bert(inputs))


def test_presets_and_tasks_are_taken(bert, tmp_path):
    """The vocabulary of a task knows `[CLS]`."""
    tokenizer = keras_hub.models.BertTokenizer(VOCABULARY)
    preprocessor = keras_hub.models.BertMaskedLMPreprocessor(tokenizer, sequence_length=8)
    task = keras_hub.models.BertMaskedLM(bert, preprocessor)
    task.save_to_preset(str(tmp_path / "task"))
    bert.save_to_preset(str(tmp_path / "backbone"))
    for source, cls in ((task, CLS), (str(tmp_path / "task"), CLS), (tmp_path / "backbone", None)):
        # With more columns than scores, which start with the same values each time.
        found = DietBertBackbone.from_bert(source, rank=LENGTH + 4).get_weights()
        expected = DietBertBackbone.from_bert(bert, rank=LENGTH + 4, cls_token_id=cls).get_weights()
        assert_all_close(found, expected, 0)


# === Scores of positions ===


@pytest.mark.parametrize(
    ("rank", "sharing"),
    [
        (3, "none"),
        (HEAD_DIM, "none"),
        (LENGTH + 4, "none"),
        (7, "head-wise"),
        (LENGTH + 4, "head-wise"),
        (7, "layer-wise"),
        (LENGTH + 4, "layer-wise"),
        (HEAD_DIM, None),
    ],
)
def test_diet_abs_has_the_positional_scores_of_bert(bert, scores, sharing, rank):
    backbone = DietBertBackbone.from_bert(bert, "diet_abs", rank=rank, sharing=sharing)
    # The class has layer-wise sharing by default.
    sharing = sharing or "none"
    expected = shared(scores, sharing)
    # Those of two layers, or three heads, have a higher rank than one.
    sizes = {"none": HEAD_DIM, "head-wise": 3 * HEAD_DIM, "layer-wise": 2 * HEAD_DIM}
    if rank < min(sizes[sharing], LENGTH - 2):
        expected = truncated(expected, rank)
    assert_close(analysis.position_scores(backbone), expected, 1e-4)


@every_backend
@pytest.mark.parametrize("sharing", ["layer-wise", *once("head-wise", None)])
def test_diet_rel_has_the_means_of_diagonals(bert, scores, sharing):
    backbone = DietBertBackbone.from_bert(bert, "diet_rel", sharing=sharing)
    expected = np.empty_like(scores)
    mean = shared(scores, sharing or "none")
    for i in range(LENGTH):
        for j in range(LENGTH):
            pairs = [(s, t) for s in range(LENGTH) for t in range(LENGTH) if s - t == i - j]
            expected[..., i, j] = np.mean([mean[..., s, t] for s, t in pairs], axis=0)
    assert_close(analysis.position_scores(backbone), expected, 1e-4)


def shared(scores, sharing):
    """Their means times the share that these keep, for heads in the best order."""
    if sharing == "none":
        return scores
    if sharing == "layer-wise":
        scores = aligned(scores)
        mean = scores.mean(axis=0)
        return np.stack([mean * shared_part(scores, mean)] * LAYERS)
    means = [heads.mean(axis=0) for heads in scores]
    pairs = zip(scores, means, strict=True)
    return np.stack([[mean * shared_part(heads, mean)] * HEADS for heads, mean in pairs])


def shared_part(scores, mean):
    return 1 - np.sum((scores - mean) ** 2) / np.sum(scores**2)


def aligned(scores):
    """The heads of the second layer in the order that makes it most like the first."""

    def likeness(order):
        return np.sum(scores[0] * scores[1, order])

    order = max(map(list, itertools.permutations(range(HEADS))), key=likeness)
    return np.stack([scores[0], scores[1, order]])


def truncated(scores, rank):
    left, values, right = np.linalg.svd(scores, full_matrices=False)
    return (left[..., :rank] * values[..., None, :rank]) @ right[..., :rank, :]


def test_the_order_of_heads_does_not_change_outputs(rng, bert):
    """Without the scores, layer-wise sharing has the same outputs as none."""
    inputs = random_inputs(rng)
    outputs = []
    for sharing in ("layer-wise", "none"):
        backbone = DietBertBackbone.from_bert(bert, sharing=sharing, dropout=0.0)
        for bias in backbone.encoder.position_biases:
            bias.key_embedding.assign(0 * bias.key_embedding)
        outputs.append(backbone(inputs)["sequence_output"])
    assert_close(*outputs)


def test_heads_in_another_order_are_found(rng):
    heads = rng.normal(size=(7, 11, 11))
    orders = np.stack([np.arange(7), rng.permutation(7), rng.permutation(7)])
    found = head_orders(np.stack([heads[order] for order in orders]))
    for order, places in zip(orders, found, strict=True):
        np.testing.assert_array_equal(order[places], orders[0][found[0]])
    # The first head is most like the second one of the next layer, but the second is more so.
    first, second = np.eye(4).reshape(2, 2, 4)
    scores = np.array([[first, second], [first, 2 * first + 5 * second]])
    assert head_orders(scores).tolist() == [[0, 1], [0, 1]]


# === Segments, and what the tokens get ===


def test_segment_scores_are_those_of_bert(bert, weights):
    segments = weights["segment_embedding/embeddings"]
    parts = expected_parts(segments, segments.mean(axis=0), weights, first_is_cls=False)
    backbone = DietBertBackbone.from_bert(bert, sharing="none")
    assert_close(analysis.segment_scores(backbone), expected_scores(parts, weights), 1e-4)


@pytest.mark.parametrize(
    ("position_encoding", "segment_encoding"),
    [("diet_abs", "per-head"), ("diet_abs", "input"), ("input", "input"), ("none", "none")],
)
def test_tokens_get_the_means_of_what_leaves_the_input(
    bert, weights, position_encoding, segment_encoding
):
    backbone = DietBertBackbone.from_bert(
        bert, position_encoding, segment_encoding=segment_encoding, cls_token_id=CLS
    )
    positions = weights["position_embedding/embeddings"]
    segments = weights["segment_embedding/embeddings"]
    expected = weights["token_embedding/embeddings"].copy()
    if position_encoding != "input":
        for token in range(len(expected)):
            expected[token] += positions[0] if token == CLS else positions[1:].mean(axis=0)
    if segment_encoding != "input":
        expected += segments.mean(axis=0)
    assert_close(backbone.token_embedding.embeddings, expected)


# === Conventions ===


def test_arguments_reach_the_backbone(bert):
    arguments = {
        **{"sharing": "head-wise", "segment_encoding": "none", "dropout": 0.25, "name": "mine"},
        **{"attention_implementation": "full", "recompute": "block", "trainable": False},
    }
    backbone = DietBertBackbone.from_bert(bert, "diet_rel", dtype="bfloat16", **arguments)
    assert {name: getattr(backbone, name) for name in arguments} == arguments
    assert backbone.dtype_policy.name == "bfloat16"
    assert not backbone.trainable_weights
    half = keras_hub.models.BertBackbone(**SIZES, dropout=0.3, dtype="bfloat16")
    backbone = DietBertBackbone.from_bert(half)
    assert (backbone.dropout, backbone.dtype_policy.name) == (0.3, "bfloat16")
    assert DietBertBackbone.from_bert(half, dropout=0.0).dropout == 0
    assert DietBertBackbone.from_bert(half, dtype="float32").dtype_policy.name == "float32"


def test_refusals(bert):
    convert = DietBertBackbone.from_bert
    for make, message in (
        (lambda: convert(bert, "t5"), "`position_encoding` must be one of 'diet_abs'"),
        (lambda: convert(tiny_backbone(num_layers=1)), r"`bert` must be .*Received: bert="),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_fewer_positions(rng, bert):
    backbone = DietBertBackbone.from_bert(bert, **AT_INPUT, max_sequence_length=7)
    inputs = random_inputs(rng, length=7)
    assert_close(backbone(inputs)["sequence_output"], bert(inputs)["sequence_output"])
    assert DietBertBackbone.from_bert(bert, max_sequence_length=1).max_sequence_length == 1


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e4])
def test_columns_without_scores_keep_a_gradient_at_any_scale(rng, scale):
    """Rounding makes singular values of zero about 1e-7 of the largest."""
    left, right = rng.normal(size=(2, HEADS, 7, 2))
    scores = (left @ np.swapaxes(right, 1, 2)).astype("float32") * np.float32(scale)
    query, key = low_rank_factors(scores, 5, rng)
    assert_close(np.einsum("ihr,jhr->hij", query, key) / scale, scores / scale, 1e-4)
    assert not key[..., 2:].any()
    assert np.all(query[..., 2:])
