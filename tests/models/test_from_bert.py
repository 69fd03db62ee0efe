"""`DietBertBackbone.from_bert`: exact where it can be, the documented start where it cannot."""

import itertools

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet import analysis
from keras_diet.models import DietBertBackbone, DietBertMaskedLM
from keras_diet.models.diet_bert.from_bert.scores import head_orders
from tests.helpers import assert_close, gradients, random_loss, to_numpy
from tests.models.tiny import SIZES, VOCABULARY, random_inputs, randomize_weights, tiny_backbone

AT_INPUT = {"position_encoding": "input", "segment_encoding": "input"}
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


@pytest.mark.parametrize("encoding", ["input", "diet_abs_input"])
def test_positions_at_the_input_give_the_outputs_of_kerashubs_bert(rng, bert, encoding):
    backbone = DietBertBackbone.from_bert(bert, encoding, segment_encoding="input", dropout=0.0)
    inputs = random_inputs(rng)
    for name, expected in bert(inputs).items():
        assert_close(backbone(inputs)[name], expected)


@pytest.mark.any_backend
def test_it_is_a_copy(rng, bert):
    # Segments stay at the input with the positions.
    backbone = DietBertBackbone.from_bert(bert, "input")
    inputs = random_inputs(rng)
    before = to_numpy(bert(inputs)["sequence_output"])
    backbone.set_weights([0 * to_numpy(weight) for weight in backbone.weights])
    assert_close(bert(inputs)["sequence_output"], before, 0)
    assert [weight.path for weight in backbone.weights] == [
        weight.path for weight in tiny_backbone(**AT_INPUT).weights
    ]


@pytest.mark.any_backend
def test_presets_and_tasks_are_taken(rng, bert, tmp_path):
    tokenizer = keras_hub.models.BertTokenizer(VOCABULARY)
    preprocessor = keras_hub.models.BertMaskedLMPreprocessor(tokenizer, sequence_length=8)
    task = keras_hub.models.BertMaskedLM(bert, preprocessor)
    task.save_to_preset(str(tmp_path / "task"))
    bert.save_to_preset(str(tmp_path / "backbone"))
    inputs = random_inputs(rng)
    with_cls = DietBertBackbone.from_bert(bert, cls_token_id=CLS)(inputs)["sequence_output"]
    without = DietBertBackbone.from_bert(bert)(inputs)["sequence_output"]
    for source, expected in (
        (task, with_cls),
        (str(tmp_path / "task"), with_cls),
        (tmp_path / "backbone", without),
    ):
        assert_close(DietBertBackbone.from_bert(source)(inputs)["sequence_output"], expected)


# === Scores of positions ===


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("rank", "sharing"),
    [
        (HEAD_DIM, "none"),
        (LENGTH + 4, "none"),
        (7, "head-wise"),
        (LENGTH + 4, "head-wise"),
        (7, "layer-wise"),
        (LENGTH + 4, None),
    ],
)
def test_diet_abs_has_the_positional_scores_of_bert(bert, scores, sharing, rank):
    backbone = DietBertBackbone.from_bert(bert, "diet_abs", rank=rank, sharing=sharing)
    expected = shared(scores, sharing or "layer-wise")
    # Those of two layers, or three heads, have a higher rank than one.
    sizes = {"none": HEAD_DIM, "head-wise": 3 * HEAD_DIM, "layer-wise": 2 * HEAD_DIM}
    if rank < min(sizes[sharing or "layer-wise"], LENGTH - 2):
        expected = truncated(expected, rank)
    assert_close(analysis.position_scores(backbone), expected, 1e-4)


@pytest.mark.any_backend
@pytest.mark.parametrize("rank", [1, 3])
def test_a_lower_rank_keeps_the_best_approximation(bert, scores, rank):
    backbone = DietBertBackbone.from_bert(bert, "diet_abs", rank=rank, sharing="none")
    assert_close(analysis.position_scores(backbone), truncated(scores, rank), 1e-4)


@pytest.mark.parametrize("sharing", ["head-wise", "layer-wise", None])
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


@pytest.mark.any_backend
def test_the_term_has_the_rank_of_a_head(scores):
    assert np.max(analysis.numerical_rank(scores.astype("float32"))) == HEAD_DIM


def test_columns_without_scores_can_learn(rng, bert):
    backbone = DietBertBackbone.from_bert(bert, rank=LENGTH + 4, sharing="none", dropout=0.0)
    inputs = random_inputs(rng, length=LENGTH)
    loss = random_loss(lambda: backbone(inputs)["sequence_output"], rng)
    keys = [bias.key_embedding for bias in backbone.encoder.position_biases]
    for gradient in gradients(loss, keys):
        assert np.all(np.max(np.abs(gradient), axis=0) > 1e-6)


@pytest.mark.any_backend
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


@pytest.mark.any_backend
@pytest.mark.parametrize("seed", range(3))
def test_heads_in_another_order_are_found(seed):
    rng = np.random.default_rng(seed)
    heads = rng.normal(size=(7, 11, 11))
    orders = np.stack([np.arange(7), rng.permutation(7), rng.permutation(7)])
    found = head_orders(np.stack([heads[order] for order in orders]))
    for order, places in zip(orders, found, strict=True):
        np.testing.assert_array_equal(order[places], orders[0][found[0]])


# === Segments, and what the tokens get ===


def test_segment_scores_are_those_of_bert(bert, weights):
    segments = weights["segment_embedding/embeddings"]
    parts = expected_parts(segments, segments.mean(axis=0), weights, first_is_cls=False)
    backbone = DietBertBackbone.from_bert(bert, sharing="none")
    assert_close(analysis.segment_scores(backbone), expected_scores(parts, weights), 1e-4)


@pytest.mark.any_backend
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


@pytest.mark.any_backend
def test_cls_keeps_its_hidden_state(rng, bert):
    """It always has the first position, so nothing is lost."""
    inputs = random_inputs(rng)
    inputs["token_ids"][:, 0] = CLS
    backbone = DietBertBackbone.from_bert(bert, segment_encoding="input", cls_token_id=CLS)
    x = backbone.token_embedding(inputs["token_ids"])
    x = backbone.embeddings_layer_norm(
        backbone.input_encoding(x, segment_ids=inputs["segment_ids"])
    )
    expected = bert.get_layer("embeddings_layer_norm").output
    berts = keras.Model(bert.input, expected)(inputs)
    assert_close(x[:, 0], berts[:, 0])


@pytest.mark.any_backend
def test_fewer_positions(rng, bert):
    backbone = DietBertBackbone.from_bert(bert, **AT_INPUT, max_sequence_length=7)
    inputs = random_inputs(rng, length=7)
    assert_close(backbone(inputs)["sequence_output"], bert(inputs)["sequence_output"])
    assert DietBertBackbone.from_bert(bert, max_sequence_length=1).max_sequence_length == 1


# === Conventions ===


@pytest.mark.any_backend
def test_arguments_reach_the_backbone(bert):
    backbone = DietBertBackbone.from_bert(
        bert,
        "diet_rel",
        sharing="head-wise",
        segment_encoding="none",
        dropout=0.25,
        attention_implementation="full",
        recompute="block",
        dtype="bfloat16",
        name="from_bert",
        trainable=False,
    )
    assert backbone.sharing == "head-wise"
    assert backbone.segment_encoding == "none"
    assert backbone.dropout == 0.25
    assert backbone.attention_implementation == "full"
    assert backbone.recompute == "block"
    assert backbone.dtype_policy.name == "bfloat16"
    assert backbone.name == "from_bert"
    assert not backbone.trainable_weights
    assert DietBertBackbone.from_bert(bert).dropout == bert.dropout


@pytest.mark.any_backend
def test_the_start_is_the_same_each_time(bert):
    first, second = (DietBertBackbone.from_bert(bert, rank=11).get_weights() for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_it_trains_and_is_saved(rng, bert, tmp_path):
    backbone = DietBertBackbone.from_bert(bert)
    path = str(tmp_path / "preset")
    backbone.save_to_preset(path)
    inputs = random_inputs(rng)
    loaded = DietBertBackbone.from_preset(path)
    assert_close(loaded(inputs)["sequence_output"], backbone(inputs)["sequence_output"])
    assert DietBertMaskedLM(backbone).backbone is backbone


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"position_encoding": "t5"}, "`position_encoding` must be one of 'diet_abs'"),
        ({"position_encoding": "diet_rel", "rank": 3}, "`rank` is not supported"),
        ({"position_encoding": "input", "sharing": "none"}, "`sharing` is not supported"),
        ({"segment_encoding": "head"}, "`segment_encoding` must be one of"),
        ({"max_sequence_length": 14}, "max_sequence_length=14, where the BERT has 13"),
        ({"max_sequence_length": 0}, "`max_sequence_length` must be a positive integer"),
        ({"cls_token_id": 31}, r"`cls_token_id` must be an integer in \[0, 31\)"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_bad_arguments_are_refused(bert, arguments, message):
    with pytest.raises(ValueError, match=message):
        DietBertBackbone.from_bert(bert, **arguments)


@pytest.mark.any_backend
def test_unknown_arguments_are_refused(bert):
    with pytest.raises(TypeError, match="num_layers"):
        DietBertBackbone.from_bert(bert, num_layers=1)


@pytest.mark.any_backend
def test_other_models_are_refused(bert, tmp_path):
    roberta = keras_hub.models.RobertaBackbone(**{k: SIZES[k] for k in SIZES})
    roberta.save_to_preset(str(tmp_path))
    for source in (roberta, 3, None, str(tmp_path), "bert_of_nobody", tmp_path / "missing"):
        with pytest.raises(ValueError, match=r"`bert` must be .*Received: bert="):
            DietBertBackbone.from_bert(source)


@pytest.mark.any_backend
def test_a_bert_with_more_weights_is_refused():
    bert = keras_hub.models.BertBackbone(**SIZES)
    bert.enable_lora(2)
    with pytest.raises(ValueError, match="must not be quantized or have LoRA"):
        DietBertBackbone.from_bert(bert)


@pytest.mark.any_backend
def test_the_id_of_cls_may_be_numpys(bert):
    first, second = (DietBertBackbone.from_bert(bert, cls_token_id=i) for i in (CLS, np.int64(CLS)))
    for one, other in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


# === Presets that are damaged ===


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("model.weights.h5", "", "Received: bert=.*which KerasHub cannot load: .*open file"),
        ("tokenizer.json", "{", "Received: bert=.*which KerasHub cannot load"),
        ("assets/tokenizer/vocabulary.txt", "[PAD]", r"cannot load: .*\[UNK\]"),
        (
            "assets/tokenizer/vocabulary.txt",
            "\n".join([*VOCABULARY, "more"]),
            "does not fit the weights. Received: 32 tokens.*vocab_size=31",
        ),
    ],
    ids=["weights", "tokenizer", "cut-vocabulary", "long-vocabulary"],
)
def test_damaged_presets_are_refused(bert, tmp_path, name, contents, message):
    """Without its vocabulary the tokens of a preset would not get the position of `[CLS]`."""
    bert.save_to_preset(str(tmp_path))
    keras_hub.models.BertTokenizer(VOCABULARY).save_to_preset(str(tmp_path))
    (tmp_path / name).write_text(contents)
    with pytest.raises(ValueError, match=message):
        DietBertBackbone.from_bert(tmp_path)


# === Cases beside the usual ones ===


@pytest.mark.any_backend
@pytest.mark.parametrize("cls_token_id", [-1, True, 2.0])
def test_other_ids_of_cls_are_refused(bert, cls_token_id):
    with pytest.raises(ValueError, match=r"`cls_token_id` must be an integer in \[0, 31\)"):
        DietBertBackbone.from_bert(bert, cls_token_id=cls_token_id)


@pytest.mark.any_backend
def test_the_dtype_is_that_of_the_bert_by_default():
    bert = keras_hub.models.BertBackbone(**SIZES, dtype="bfloat16")
    assert DietBertBackbone.from_bert(bert).dtype_policy.name == "bfloat16"
    assert DietBertBackbone.from_bert(bert, dtype="float32").dtype_policy.name == "float32"
