"""DeBERTa's attention computes what `transformers` computes, and has its logarithmic rows."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    BiasedTransformerEncoder,
    DisentangledMultiHeadAttention,
    PositionTable,
)
from keras_diet.layers.attention.disentangled_multi_head_attention import rows_of_distances
from tests.helpers import assert_close, randomize, to_numpy

NUM_HEADS, KEY_DIM, LENGTH, BUCKETS, DISTANCE = 3, 4, 23, 6, 17
HIDDEN = NUM_HEADS * KEY_DIM
SHARED = {"share_att_key": True, "position_buckets": BUCKETS, "norm_rel_ebd": "layer_norm"}
SEPARATE = {"share_att_key": False, "norm_rel_ebd": "none"}
CASES = {
    "v3": ("v2", {**SHARED, "pos_att_type": ["p2c", "c2p"]}),
    "separate": ("v2", {**SEPARATE, "pos_att_type": ["c2p", "p2c"]}),
    "c2p": ("v2", {**SHARED, "pos_att_type": ["c2p"]}),
    "p2c": ("v2", {**SEPARATE, "position_buckets": BUCKETS, "pos_att_type": ["p2c"]}),
    "v1": ("v1", {"pos_att_type": ["c2p", "p2c"]}),
    "v1 p2c": ("v1", {"pos_att_type": ["p2c"]}),
}


def make_theirs(version, arguments):
    """An attention layer of `transformers`, and the table of its encoder."""
    import torch
    from transformers import DebertaConfig, DebertaV2Config
    from transformers.models.deberta import modeling_deberta
    from transformers.models.deberta_v2 import modeling_deberta_v2

    config_of = {"v1": DebertaConfig, "v2": DebertaV2Config}[version]
    modeling = {"v1": modeling_deberta, "v2": modeling_deberta_v2}[version]
    config = config_of(
        **{"hidden_size": HIDDEN, "num_attention_heads": NUM_HEADS, "relative_attention": True},
        **{"max_relative_positions": DISTANCE, "num_hidden_layers": 1, "intermediate_size": 5},
        **arguments,
    )
    encoder = {"v1": "DebertaEncoder", "v2": "DebertaV2Encoder"}[version]
    encoder = getattr(modeling, encoder)(config).eval()
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.normal_(std=0.5)
    return encoder


def make_ours(encoder, version, arguments):
    attention = DisentangledMultiHeadAttention(
        *(NUM_HEADS, KEY_DIM, DISTANCE, arguments.get("position_buckets")),
        position_terms=tuple(arguments["pos_att_type"]),
        share_projections=arguments.get("share_att_key", False),
        normalize_table=arguments.get("norm_rel_ebd") == "layer_norm",
    )
    attention.build((2, LENGTH, HIDDEN), (2, LENGTH, HIDDEN))
    theirs = encoder.layer[0].attention.self
    values = {name: each.detach().numpy() for name, each in theirs.named_parameters()}
    if version == "v1":
        # The projections of a head follow each other.
        parts = values["in_proj.weight"].reshape(NUM_HEADS, 3, KEY_DIM, HIDDEN)
        for i, name in enumerate(("query", "key", "value")):
            values[f"{name}_proj.weight"] = parts[:, i].reshape(HIDDEN, HIDDEN)
            values[f"{name}_proj.bias"] = values.get(f"{name[0]}_bias", np.zeros(HIDDEN))
        names = {"c2p": "pos_proj", "p2c": "pos_q_proj"}
    else:
        names = {"c2p": "pos_key_proj", "p2c": "pos_query_proj"}
    denses = {
        "query_proj": attention.query_dense,
        "key_proj": attention.key_dense,
        "value_proj": attention.value_dense,
    }
    if not attention.share_projections:
        denses |= {names[term]: dense for term, dense in attention.position_denses.items()}
    for name, dense in denses.items():
        kernel = values[f"{name}.weight"].T.reshape(HIDDEN, NUM_HEADS, KEY_DIM)
        bias = values.get(f"{name}.bias", np.zeros(HIDDEN)).reshape(NUM_HEADS, KEY_DIM)
        dense.set_weights([kernel, bias])
    identity = np.eye(HIDDEN).reshape(NUM_HEADS, KEY_DIM, HIDDEN)
    attention.output_dense.set_weights([identity, np.zeros(HIDDEN)])
    attention.table.embedding.assign(encoder.rel_embeddings.weight.detach().numpy())
    if attention.normalize_table:
        norm = encoder.LayerNorm
        norm = [norm.weight.detach().numpy(), norm.bias.detach().numpy()]
        attention.table.layer_norm.set_weights(norm)
    return attention


@pytest.mark.parametrize("name", CASES)
def test_equals_transformers(rng, name):
    pytest.importorskip("transformers")
    import torch

    version, arguments = CASES[name]
    encoder = make_theirs(version, arguments)
    attention = make_ours(encoder, version, arguments)
    x = rng.normal(size=(2, LENGTH, HIDDEN)).astype("float32")
    valid = np.arange(LENGTH) < np.array([[LENGTH], [LENGTH - 4]])
    states, mask = torch.tensor(x), torch.tensor(valid[:, None, None] & valid[:, None, :, None])
    with torch.no_grad():
        expected = encoder.layer[0].attention.self(
            states,
            mask,
            relative_pos=encoder.get_rel_pos(states),
            rel_embeddings=encoder.get_rel_embedding(),
        )[0]
    output = to_numpy(
        attention(x, x, attention_mask=np.broadcast_to(valid[:, None], (2, LENGTH, LENGTH)))
    )
    assert_close(output[valid], expected.numpy()[valid], 2e-5)


@pytest.mark.any_backend
def test_rows_of_far_distances():
    """Those of DeBERTa v3, by its function."""
    modeling = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    import torch

    distances = torch.arange(-512, 513)
    expected = modeling.make_log_bucket_position(distances, 256, 512).long()
    expected = torch.clamp(expected + 256, 0, 511).numpy()
    np.testing.assert_array_equal(rows_of_distances(512, 256), expected)
    # Rows that many distances share, and all rows.
    assert np.bincount(expected).max() == 7
    assert len(set(expected)) == 512


def make_attentions(table):
    """Two attention layers with one table, which the first makes if it is `None`."""
    first = DisentangledMultiHeadAttention(NUM_HEADS, KEY_DIM, table=table)
    return first, DisentangledMultiHeadAttention(NUM_HEADS, KEY_DIM, table=first.table)


@pytest.mark.parametrize("table", [None, PositionTable(512)], ids=["of a layer", "of the user"])
@pytest.mark.parametrize("in_blocks", [False, True], ids=["attention", "blocks"])
def test_layers_of_a_loaded_model_share_a_table(rng, tmp_path, in_blocks, table):
    attentions = make_attentions(table)
    x = inputs = keras.Input((LENGTH, HIDDEN))
    for attention in attentions:
        if in_blocks:
            x = BiasedTransformerEncoder(5, NUM_HEADS, self_attention=attention)(x)
        else:
            x = attention(x, x)
    model = randomize(keras.Model(inputs, x), rng)
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    batch = rng.normal(size=(2, LENGTH, HIDDEN)).astype("float32")
    assert_close(copy(batch), model(batch), 1e-5)
    first, second = (getattr(each, "self_attention", each).table for each in copy.layers[1:])
    assert first is second
    assert len(copy.weights) == len(model.weights)


@pytest.mark.any_backend
def test_a_copy_of_a_layer_has_its_own_table():
    layer = make_attentions(None)[1]
    assert DisentangledMultiHeadAttention.from_config(layer.get_config()).table is not layer.table


@pytest.mark.any_backend
def test_regularizers_and_constraints_reach_the_projections_of_the_table():
    arguments = {
        **{"kernel_regularizer": "l1", "bias_regularizer": "l2"},
        **{"kernel_constraint": "unit_norm", "bias_constraint": "non_neg"},
    }
    attention = DisentangledMultiHeadAttention(3, 4, share_projections=False, **arguments)
    attention.build((2, LENGTH, HIDDEN), (2, LENGTH, HIDDEN))
    for name in arguments:
        assert getattr(attention.query_dense, name) is not None
        kinds = [type(getattr(each, name)) for each in attention.position_denses.values()]
        assert kinds == 2 * [type(getattr(attention.query_dense, name))], name


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"position_terms": ("p2p",)}, "`position_terms` must be.*p2p"),
        ({"position_terms": ()}, "`position_terms` must be"),
        ({"num_buckets": 7}, "`num_buckets` must be even.*=7"),
        ({"num_buckets": 8, "max_distance": 5}, "`num_buckets` must be even and below"),
        ({"table": PositionTable(10)}, "`table` must.*=10 with num_buckets=256.*num_rows=512"),
        ({"table": PositionTable(512), "num_buckets": None, "max_distance": 9}, "num_rows=18"),
        # That of `DietEncoder`, which has no `num_buckets`.
        ({"max_distance": 129}, "a `max_distance` above 129, or"),
    ],
)
def test_refused_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        DisentangledMultiHeadAttention(NUM_HEADS, KEY_DIM, **arguments)


@pytest.mark.any_backend
def test_the_smallest_distance_of_256_buckets():
    assert DisentangledMultiHeadAttention(NUM_HEADS, KEY_DIM, 130).table.num_rows == 512
