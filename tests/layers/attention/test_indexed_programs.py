"""Kernels that compute terms from indices: FlexAttention on PyTorch, tiles in Pallas on JAX."""

import functools
import importlib.util
import re

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet import _backend
from keras_diet.layers import BiasedMultiHeadAttention, DietEncoder, ScoreTerms
from keras_diet.layers.attention import flex_attention, pallas_attention, prepared_terms
from keras_diet.layers.attention.dot_product import attend
from keras_diet.layers.attention.plan import AttentionPlan, make_plan
from keras_diet.layers.attention.prepared_terms import PreparedTerms, prepare
from tests import reference
from tests.helpers import assert_close, gradients, randomize, to_numpy
from tests.layers.bias_layers import NUM_HEADS, expected_scores, make_bias

BACKEND = keras.backend.backend()
pytestmark = [
    pytest.mark.skipif(BACKEND == "tensorflow", reason="has no such kernel"),
    # Uncompiled, as on a CPU, FlexAttention warns that it computes all scores.
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
]
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="the kernel in Pallas")
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="FlexAttention")

# Tiles of 8: the last ones are not full. Several blocks lie between those at the ends.
TILE, LENGTH, OTHER, BATCH, KEY_DIM, VALUE_DIM, SCALE = 8, 37, 19, 2, 5, 3, 0.7
DOCUMENTS = np.array([[4] * 10 + [7] * 3 + [2] * 20 + [9] * 4, [5] * 30 + [1] * 7], "int32")
PADDING = np.ones((BATCH, LENGTH), "bool")
PADDING[0, 29:], PADDING[1, 3] = False, False
PAIRS = np.arange(LENGTH)
MASKS = {
    "padding": ({"padding_mask": PADDING}, PADDING[:, None, None, :]),
    "causal": ({"is_causal": True}, PAIRS[:, None] >= PAIRS),
    # The first and the last query of a tile reach one token of another tile.
    "window": ({"sliding_window": TILE + 2}, reference.window_mask(LENGTH, TILE + 2)),
    "documents": (
        {"document_ids": DOCUMENTS},
        (DOCUMENTS[:, :, None] == DOCUMENTS[:, None, :])[:, None],
    ),
}
COMBINATIONS = [*[(name,) for name in MASKS], tuple(MASKS)]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setitem(pallas_attention.TILE_SIZES, "cpu", TILE)


def without_gradients():
    if BACKEND != "torch":
        return keras.StatelessScope([])
    import torch

    return torch.no_grad()


def terms_and_mask(names):
    """Terms of some masks, and the mask by the reference."""
    terms, mask = {}, np.ones((BATCH, 1, LENGTH, LENGTH), "bool")
    for name in names:
        term, of_name = MASKS[name]
        terms, mask = {**terms, **term}, mask & of_name
    return terms, mask


def by_reference(query, key, value, bias, mask):
    """Attention of heads `(B, T, H, d)`. Queries without keys have outputs of zero."""
    output = reference.attention_of_heads(query, key, value, SCALE, bias, mask)
    mask = np.broadcast_to(mask, (BATCH, 1, query.shape[1], key.shape[1]))
    return np.where(mask.any(axis=3)[:, 0, :, None, None], output, 0.0)


def make_heads(rng, query_length=LENGTH, key_length=LENGTH):
    sizes = ((query_length, KEY_DIM), (key_length, KEY_DIM), (key_length, VALUE_DIM))
    return [
        rng.normal(size=(BATCH, length, NUM_HEADS, size)).astype("float32")
        for length, size in sizes
    ]


def output_of(heads, terms):
    """The output of heads by the kernel of the backend."""
    query, key, value = map(ops.convert_to_tensor, heads)
    attention = BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM, value_dim=VALUE_DIM)
    plan = make_plan(attention, terms, query.shape[1], implementation="indexed")
    assert plan.program == {"torch": "flex", "jax": "pallas"}[BACKEND]
    with without_gradients():
        prepared = prepare(terms, plan, query, None if query.shape == key.shape else key)
        return attend(query, key, value, prepared.replace(scale=SCALE))[0]


@pytest.mark.parametrize("names", COMBINATIONS, ids=" and ".join)
def test_output_with_masks(rng, names):
    terms, mask = terms_and_mask(names)
    heads, bias = make_heads(rng), make_bias("relative", rng, max_length=LENGTH)
    found = output_of(heads, ScoreTerms(bias=bias, **terms))
    assert_close(found, by_reference(*heads, expected_scores(bias, LENGTH), mask))


@pytest.mark.parametrize(
    "name, lengths",
    [
        ("relative", (OTHER, LENGTH)),
        ("t5_causal", (LENGTH, OTHER)),
        ("relative", (1, OTHER)),
        ("t5_causal", (16, 24)),
    ],
    ids=str,
)
def test_output_of_other_lengths(rng, name, lengths):
    heads, bias = make_heads(rng, *lengths), make_bias(name, rng, max_length=LENGTH)
    for is_causal, mask in ((False, True), (True, np.tri(*lengths, dtype="bool"))):
        found = output_of(heads, ScoreTerms(bias=bias, is_causal=is_causal))
        assert_close(found, by_reference(*heads, expected_scores(bias, *lengths), mask))


@pytest.mark.parametrize("name", [None, "absolute", "kerple_log", "tupe_rel"])
def test_output_with_features(rng, name):
    """Segments and positions of low rank are columns beside a bias by distance."""
    bias = name and make_bias(name, rng, max_length=LENGTH)
    features = tuple(rng.normal(size=(BATCH, LENGTH, 1, 2)).astype("float32") for _ in "qk")
    heads = make_heads(rng)
    terms = ScoreTerms(bias=bias, features=(features,), padding_mask=PADDING)
    scores = np.einsum("bihr,bjhr->bhij", *features)
    scores = scores + (expected_scores(bias, LENGTH) if bias else 0)
    expected = by_reference(*heads, scores, PADDING[:, None, None])
    assert_close(output_of(heads, terms), expected, 2e-5)


@pytest.mark.parametrize("name", ["alibi", "absolute", "tupe_rel"])
def test_positions_begin_again_in_each_document(rng, name):
    bias, ids = make_bias(name, rng, max_length=LENGTH), DOCUMENTS
    start_of_document = np.array([[row.tolist().index(i) for i in row] for row in ids])
    positions = np.arange(LENGTH) - start_of_document
    scores = expected_scores(bias, LENGTH)[0]
    scores = np.moveaxis(scores[:, positions[:, :, None], positions[:, None, :]], 0, 1)
    heads, mask = make_heads(rng), MASKS["documents"][1]
    found = output_of(heads, ScoreTerms(bias=bias, document_ids=ids))
    assert_close(found, by_reference(*heads, scores, mask), 2e-5)


def test_a_query_without_keys_has_an_output_of_zero(rng):
    ids = np.zeros((BATCH, LENGTH), "int32")
    ids[0, 20:] = 1
    padding = np.arange(LENGTH) < np.array([[20], [LENGTH]])
    bias = make_bias("relative", rng, max_length=LENGTH)
    terms = ScoreTerms(bias=bias, document_ids=ids, padding_mask=padding)
    output = to_numpy(output_of(make_heads(rng), terms))
    assert not output[0, 20:].any(), "All keys of this document are padding."
    assert output[0, :20].any(axis=(1, 2)).all()
    assert output[1].any(axis=(1, 2)).all()


@on_torch
# A user does not see deprecation warnings of a library.
@pytest.mark.filterwarnings("error", "ignore::DeprecationWarning")
def test_one_program_serves_all_masks_and_lengths(rng, monkeypatch):
    """PyTorch stops to compile a function after 8 times, and computes slowly from then on."""
    import torch

    programs = []

    def backend(graph, inputs):
        programs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    flex_attention._function.cache_clear()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    bias = make_bias("t5", rng)
    for length, window, causal, documents in [
        (400, None, True, 1), (530, 9, False, 1), (400, 4, True, 5), (530, None, False, 2),
        (400, 33, True, 3), (530, 100, False, 1),
    ]:  # fmt: skip
        ids = np.tile(np.arange(length) * documents // length, (BATCH, 1)).astype("int32")
        padding = np.arange(length) < np.array([[length], [length - documents]])
        heads = make_heads(rng, length, length)
        masks = {"is_causal": causal, "sliding_window": window, "document_ids": ids}
        terms = ScoreTerms(bias=bias, padding_mask=padding, **masks)
        outputs = []
        for platform in ("gpu", "cpu"):
            monkeypatch.setattr(_backend, "platform", lambda platform=platform: platform)
            outputs.append(to_numpy(output_of(heads, terms)))
        assert_close(*outputs, 2e-5)
        names = f"{length} tokens, window {window}, causal {causal}, {documents} documents"
        assert len(programs) == 2, f"the mask and attention; {len(programs)} after {names}"
    flex_attention._function.cache_clear()


# === Gradients, in Pallas ===


def tiled(query, key, value, by_distance=None, terms=None):
    plan = AttentionPlan("pallas", bias="distances", masks_padding=True)
    terms = PreparedTerms(**(terms or {}), plan=plan, by_distance=by_distance, scale=SCALE)
    return attend(query, key, value, terms)[0]


def scores_of_table(table, query_length, key_length):
    """The scores of a table by distance: column `j - i + T - 1`."""
    distance = np.arange(key_length) - np.arange(query_length)[:, None]
    return table[None, :, distance + query_length - 1]


def gradients_of_heads(inputs, weights, terms):
    """The gradients of queries, keys, values and perhaps a table."""
    import jax

    def loss(*inputs):
        return (tiled(*inputs, terms=terms).astype("float32") * weights).sum()

    return jax.jit(jax.grad(loss, argnums=tuple(range(len(inputs)))))(*inputs)


@on_jax
@pytest.mark.parametrize(
    "names, lengths, has_table",
    [
        (("window",), (LENGTH, LENGTH), False),
        (tuple(MASKS), (LENGTH, LENGTH), True),
        ((), (OTHER, LENGTH), True),
        ((), (LENGTH, OTHER), True),
    ],
    ids=str,
)
def test_gradients_of_heads_and_table(rng, names, lengths, has_table):
    terms, mask = terms_and_mask(names) if lengths == (LENGTH, LENGTH) else ({}, True)
    inputs = [*make_heads(rng, *lengths)]
    if has_table:
        inputs.append(rng.normal(size=(NUM_HEADS, sum(lengths) - 1)).astype("float32"))
    weights = rng.normal(size=(BATCH, lengths[0], NUM_HEADS, VALUE_DIM)).astype("float32")
    found = gradients_of_heads(inputs, weights, terms)

    def loss(changed, value):
        query, key, values, *table = (*inputs[:changed], value, *inputs[changed + 1 :])
        bias = scores_of_table(*table, *lengths) if table else 0.0
        return np.sum(weights * by_reference(query, key, values, bias, mask))

    for number, (gradient, value) in enumerate(zip(found, inputs, strict=True)):
        name = ("query", "key", "value", "table")[number]
        # The largest entry and two others.
        largest = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        others = rng.integers(0, value.shape, size=(2, value.ndim))
        for index in (largest, *map(tuple, others)):
            slope = reference.finite_difference(lambda x, n=number: loss(n, x), value, index)
            error = abs(float(gradient[index]) - slope)
            assert error < 1e-3, f"gradient of the {name} at {index}: {gradient[index]}, {slope}"


@on_jax
def test_bfloat16_is_as_exact_as_its_roundings(rng):
    terms, mask = terms_and_mask(MASKS)
    heads = [np.array(ops.cast(ops.cast(x, "bfloat16"), "float32")) for x in make_heads(rng)]
    table = rng.normal(size=(NUM_HEADS, 2 * LENGTH - 1)).astype("float32")
    narrow = [ops.cast(x, "bfloat16") for x in heads]
    output = tiled(*narrow, table, terms)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    expected = by_reference(*heads, scores_of_table(table, LENGTH, LENGTH), mask)
    assert np.abs(to_numpy(output) - expected).max() < 2**-7 * np.abs(expected).max()
    ones = ops.ones(heads[2].shape, "bfloat16")
    sums = to_numpy(tiled(*narrow[:2], ones, table))
    assert (sums == 1).all(), "The weights of a query do not sum to one. Are sums in float32?"
    weights = rng.normal(size=output.shape).astype("float32")
    exact = gradients_of_heads((*heads, table), weights, terms)
    found = gradients_of_heads((*narrow, table), weights, terms)
    for name, ours, right in zip(("query", "key", "value", "table"), found, exact, strict=True):
        error = np.abs(to_numpy(ours) - right).max() / np.abs(right).max()
        assert error < 2**-6, f"gradient of the {name}: {error}"


def function_for_export(dtype, length):
    import jax

    shape = jax.ShapeDtypeStruct
    heads = [shape((BATCH, length, NUM_HEADS, 64), dtype)] * 3
    ids = shape((BATCH, length), "int32"), shape((BATCH, length), "bool")

    def loss(query, key, value, table, ids, padding):
        terms = {"document_ids": ids, "padding_mask": padding, "is_causal": True}
        output = tiled(query, key, value, table, {**terms, "sliding_window": 200})
        return (output.astype("float32") ** 2).sum()

    table = shape((NUM_HEADS, 2 * length - 1), "float32")
    return jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3))), (*heads, table, *ids)


@on_jax
@pytest.mark.parametrize("platform, dtype", [("cuda", "bfloat16"), ("tpu", "float32")])
def test_lowers_for_accelerators_in_linear_memory(monkeypatch, platform, dtype):
    import jax

    monkeypatch.setattr(_backend, "platform", lambda: {"cuda": "gpu"}.get(platform, platform))
    target = {"cuda": "__gpu$xla.gpu.triton", "tpu": "tpu_custom_call"}[platform]
    allowed = [jax.export.DisabledSafetyCheck.custom_call(target)]
    length = 1100
    function, shapes = function_for_export(dtype, length)
    exported = jax.export.export(function, platforms=[platform], disabled_checks=allowed)(*shapes)
    program = exported.mlir_module()
    calls = len(re.findall(rf"custom_call @{re.escape(target)}", program))
    assert calls == 4, "the output, and the gradients of queries, keys and values, and tiles"
    for sizes in set(re.findall(r"tensor<((?:\d+x)+)", program)):
        long = [size for size in map(int, sizes.split("x")[:-1]) if size >= length]
        assert len(long) < 2, f"A tensor of the size {sizes} is quadratic in the length {length}."


@on_jax
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the compiler for TPUs"
)
def test_compiles_for_a_tpu(monkeypatch):
    import jax
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    for name in ("TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(_backend, "platform", lambda: "tpu")
    tpu = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
    one_chip = SingleDeviceSharding(tpu.devices[0])
    function, shapes = function_for_export("bfloat16", 300)
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=one_chip) for x in shapes]
    assert "tpu_custom_call" in function.lower(*shapes).compile().as_text()


# === In a stack of blocks ===


HIDDEN, WINDOWS = NUM_HEADS * KEY_DIM, (None, 6, None, 6)


def encoder_and_inputs(rng, implementation, num_layers=4, **kwargs):
    encoder = DietEncoder(
        num_layers, NUM_HEADS, 11, attention_implementation=implementation, dropout=0.0,
        max_sequence_length=LENGTH, num_segments=2, attention_windows=WINDOWS, **kwargs,
    )  # fmt: skip
    encoder.build((BATCH, LENGTH, HIDDEN))
    inputs = {
        "inputs": rng.normal(size=(BATCH, LENGTH, HIDDEN)).astype("float32"),
        "segment_ids": rng.integers(2, size=(BATCH, LENGTH)).astype("int32"),
        "padding_mask": PADDING,
        "document_ids": DOCUMENTS,
    }
    return randomize(encoder, rng, 0.2), inputs


def indexed_and_full(rng, **options):
    """An encoder with a kernel of indices, and one with all scores and the same weights."""
    encoder, inputs = encoder_and_inputs(rng, "indexed", **options)
    plain, _ = encoder_and_inputs(rng, "full", **options)
    plain.set_weights(encoder.get_weights())
    return (encoder, plain), inputs


@pytest.mark.parametrize("position_encoding", ["diet_abs", "tupe_rel"])
def test_an_encoder_is_the_same(rng, position_encoding):
    encoders, inputs = indexed_and_full(rng, position_encoding=position_encoding)
    with without_gradients():
        found, expected = (to_numpy(each(**inputs)) * PADDING[..., None] for each in encoders)
    assert_close(found, expected, 5e-5)


@on_torch
def test_block_masks_are_made_once_for_all_layers(rng, monkeypatch):
    made = []
    make = prepared_terms.make_block_mask
    monkeypatch.setattr(
        prepared_terms, "make_block_mask", lambda *args: made.append(args) or make(*args)
    )
    encoder, inputs = encoder_and_inputs(rng, "indexed", position_encoding="t5")
    with without_gradients():
        encoder(**inputs)
    windows = [terms.sliding_window for terms, *_ in made]
    assert windows == [None, 6], "one for the layers of each window"
    assert make(ScoreTerms(), ops.zeros((BATCH, LENGTH, 3)), None) is None, "nothing is masked"


@on_jax
def test_gradients_of_an_encoder_are_the_same(rng):
    """Its blocks are computed again for the gradient."""
    options = {"position_encoding": "tupe_rel", "num_layers": 1, "recompute": "block"}
    encoders, inputs = indexed_and_full(rng, **options)
    weights = rng.normal(size=(BATCH, LENGTH, HIDDEN)).astype("float32") * PADDING[..., None]
    found, expected = (
        gradients(
            lambda each=each: ops.sum(each(**inputs, training=True) * weights),
            each.trainable_variables,
        )
        for each in encoders
    )
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs, 1e-3)
