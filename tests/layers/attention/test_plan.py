"""The plan of attention: every row of the tables, every limit, every fact and every error."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import (
    AbsolutePositionBias,
    AttentionHook,
    BiasedMultiHeadAttention,
    RelativePositionBias,
)
from keras_diet.layers.attention import plan_rules
from keras_diet.layers.attention.cases import case_of, check_implementation
from keras_diet.layers.attention.plan import (
    BLOCK_SIZE,
    FEW_FEATURES,
    LONG,
    LONG_ON_TPU,
    LONG_WITH_KERNEL,
    SHORT,
    AttentionCase,
    AttentionPlan,
    facts_of,
    make_plan,
    size_with_columns,
)
from keras_diet.layers.attention.plan_checks import check_case, checked_plan
from keras_diet.layers.attention.score_terms import ScoreTerms

# Without a kernel that takes a bias.
SIZES = {"query_length": 13, "key_length": 17, "key_dim": 64, "value_dim": 64}
CASE = AttentionCase(backend="jax", platform="cpu", dtype="float32", **SIZES)
TORCH = {"backend": "torch"}
TPU = {"platform": "tpu"}
GPU = {"platform": "gpu", "dtype": "bfloat16"}
LAYER = {"bias": "layer"}
ROWS = {"bias": "layer", "bias_has_rows": True}
LOW_RANK = {**ROWS, "bias_has_features": True, "bias_rank": 5}
MEMORY = {"reads_memory": True}
DROPS = {"training": True, "dropout": 0.1}


def make_case(**changes):
    return dataclasses.replace(CASE, **changes)


def plan_of(**changes):
    return make_plan(make_case(**changes))


def implementation_of(plan):
    """The implementation that a plan for a bias layer of low rank shows."""
    return "blockwise" if plan.block_size else {"tensor": "full"}.get(plan.bias, plan.bias)


# For each row of each table, a case in which this row decides.
IMPLEMENTATIONS = [
    {"block_size": 3, "implementation": "full"},
    {"returns_scores": True, "implementation": "blockwise"},
    {"has_hook_kernel": True, "implementation": "full", **LOW_RANK},
    {"implementation": "full", "query_length": LONG},
    {"implementation": "features", **LOW_RANK},
    {"implementation": "blockwise", **LOW_RANK},
    {"query_length": LONG - 1, **LOW_RANK},
    {"query_length": LONG_WITH_KERNEL, **TORCH, **LOW_RANK},
    {"query_length": LONG, **LOW_RANK},
    {"query_length": LONG, **LAYER},
]
PROGRAMS = [
    {"has_hook_kernel": True, "flash_attention": True},
    {"num_axes": 2, "returns_scores": True},
    {**DROPS, **TORCH},
    {"dtype": "float16", **TORCH},
    {"flash_attention": True, **TPU},
    TPU,
    {"value_dim": 65},
    {},
    {"backend": "tensorflow", "has_padding": True, "flash_attention": True},
    {"has_padding": True, **TORCH},
    {"has_padding": True},
]
BIAS_FORMS = [
    {"bias": "tensor", "block_size": 3, "bias_has_rows": True},
    LOW_RANK,
    {**LOW_RANK, "block_size": 3},
    {**LOW_RANK, "implementation": "blockwise"},
    {**ROWS, "implementation": "blockwise"},
]
LOW_RANK_FORMS = [
    {"num_features": 2, "has_padding": True, **TPU},
    {"bias": "tensor", "num_features": 2, **TORCH},
    {"bias": "tensor", "num_features": 2, **MEMORY},
    {"has_padding": True, **MEMORY, **TORCH},
    {"bias": "tensor", "num_features": 2},
]
ROW_CASES = {
    "implementation": IMPLEMENTATIONS,
    "program": PROGRAMS,
    "form of a bias layer": BIAS_FORMS,
    "form of features and padding": LOW_RANK_FORMS,
}


def all_facts(case):
    """The facts, with the facts that the tables decide."""
    facts, found = {}, []
    original = plan_rules.first_choice

    def record(rules, given):
        facts.update(given)
        found.append(next(i for i, rule in enumerate(rules) if rule.holds(given)))
        return original(rules, given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_diet.layers.attention.plan.first_choice", record)
        make_plan(case)
    return facts, dict(zip(plan_rules.TABLES, found, strict=False))


@pytest.mark.parametrize(
    "changes, form",
    [
        ({"num_features": FEW_FEATURES}, "tensor"),
        ({"num_features": FEW_FEATURES + 1}, "columns"),
        ({"has_padding": True, "block_size": 3}, "columns"),
        ({"implementation": "features", **LOW_RANK}, "columns"),
        # Its kernel takes no bias.
        ({"has_padding": True, "flash_attention": True}, "columns"),
    ],
)
def test_forms_of_terms_with_a_memory(changes, form):
    plan = plan_of(**MEMORY, **changes)
    assert (plan.low_rank, plan.batch_first) == (form, True)
    assert not plan_of(**changes).batch_first


@pytest.mark.parametrize(
    "table, row, changes",
    [
        (table, row, changes)
        for table, cases in ROW_CASES.items()
        for row, changes in enumerate(cases)
    ],
)
def test_each_row_decides_a_case(table, row, changes):
    _, rows = all_facts(make_case(**changes))
    assert rows[table] == row


def test_every_row_has_a_case():
    assert {name: len(rules) for name, rules in plan_rules.TABLES.items()} == {
        name: len(cases) for name, cases in ROW_CASES.items()
    }


def test_every_fact_is_in_a_row():
    facts, _ = all_facts(CASE)
    fields = {field.name for field in dataclasses.fields(AttentionCase)}
    used = {
        name for rules in plan_rules.TABLES.values() for rule in rules for name in rule.conditions
    }
    assert used <= {*facts}
    assert {*facts} - fields - {"program"} <= used


def test_tables_in_markdown_have_every_row():
    lines = plan_rules.as_markdown().splitlines()
    for rules in plan_rules.TABLES.values():
        for rule in rules:
            assert any(f"`{rule.choice}`" in line and rule.why in line for line in lines)


@pytest.mark.parametrize(
    "changes, length, implementation",
    [
        (LOW_RANK, LONG, "blockwise"),
        (ROWS, LONG, "blockwise"),
        ({**LOW_RANK, **TORCH}, LONG_WITH_KERNEL, "features"),
        ({**ROWS, **TORCH}, LONG_WITH_KERNEL, "blockwise"),
        # PyTorch's kernel on CPUs has no gradient of a bias.
        ({**LOW_RANK, **TORCH, "bias_is_learned": True}, LONG, "features"),
        ({**LOW_RANK, **TORCH, "platform": "gpu", "bias_is_learned": True}, 8192, "features"),
        ({**LOW_RANK, **TORCH, **DROPS}, LONG, "blockwise"),
        ({**LOW_RANK, **TORCH, "dtype": "float16"}, LONG, "blockwise"),
        ({**LOW_RANK, **GPU}, LONG_WITH_KERNEL, "features"),
    ],
    ids=str,
)
def test_first_long_sequence(changes, length, implementation):
    plans = [plan_of(**changes, query_length=size) for size in (length - 1, length, None)]
    assert list(map(implementation_of, plans)) == ["full", implementation, "full"]


@pytest.mark.parametrize("rank, implementation", [(56, "features"), (57, "blockwise")])
def test_largest_heads_of_the_kernel(rank, implementation):
    """Heads of 64, and 8 segments and padding: up to 128."""
    changes = {**GPU, **LOW_RANK, "bias_rank": rank, "num_features": 7, "has_padding": True}
    assert implementation_of(plan_of(**changes, query_length=LONG_WITH_KERNEL)) == implementation


@pytest.mark.parametrize("num_features, program", [(64, "kernel"), (65, "scores")])
def test_largest_heads_of_the_kernel_with_a_bias(num_features, program):
    assert plan_of(**GPU, num_features=num_features).program == program


@pytest.mark.parametrize(
    "query_length, key_length, changes, program",
    [
        (LONG_ON_TPU, LONG_ON_TPU, {}, "splash"),
        (LONG_ON_TPU, LONG_ON_TPU - 1, {}, "scores"),
        (LONG_ON_TPU - 1, LONG_ON_TPU, {}, "scores"),
        (None, LONG_ON_TPU, {}, "scores"),
        (LONG_ON_TPU, LONG_ON_TPU, {"flash_attention": False}, "scores"),
        (LONG_ON_TPU, LONG_ON_TPU, {"bias": "row", "mask": "row"}, "splash"),
        (LONG_ON_TPU, LONG_ON_TPU, {"mask": "causal"}, "splash"),
        (LONG_ON_TPU, LONG_ON_TPU, {"mask": "pairs"}, "scores"),
        (LONG_ON_TPU, LONG_ON_TPU, {"bias": "tensor"}, "scores"),
        (LONG_ON_TPU, LONG_ON_TPU, LOW_RANK, "scores"),
        (LONG_ON_TPU, LONG_ON_TPU, {"dtype": "float16"}, "scores"),
    ],
)
def test_kernel_for_tpus(query_length, key_length, changes, program):
    lengths = {"query_length": query_length, "key_length": key_length}
    assert plan_of(**TPU, **lengths, implementation="full", **changes).program == program


def test_features_use_the_kernel_for_tpus_and_blocks_do_not():
    lengths = {"query_length": LONG_ON_TPU, "key_length": LONG_ON_TPU, **TPU, **LOW_RANK}
    assert plan_of(**lengths, implementation="features").program == "splash"
    assert plan_of(**lengths, implementation="blockwise").program == "scores"
    assert plan_of(**lengths, has_free_axes=True, implementation="features").program == "axes"


@pytest.mark.parametrize(
    "changes, low_rank",
    [
        ({**TPU, "num_features": FEW_FEATURES}, "tensor"),
        ({**TPU, "num_features": FEW_FEATURES + 1}, "columns"),
        ({**TPU, "num_features": FEW_FEATURES, "has_padding": True}, "columns"),
        ({**TPU, "num_features": 2, "training": True}, "columns"),
        ({**TPU, "num_features": 2, "implementation": "blockwise"}, "columns"),
        ({**TPU, "num_features": 2, "reads_scores": True}, "columns"),
        ({**TORCH, **LAYER, "query_length": SHORT - 1}, "tensor"),
        ({**TORCH, **LAYER, "query_length": SHORT}, "columns"),
        ({**TORCH, **LAYER, "query_length": None}, "columns"),
        ({**TORCH, "bias": "row"}, "columns"),
        ({**TORCH, **LOW_RANK, "implementation": "features"}, "columns"),
        ({**TORCH, "bias": "tensor", "block_size": 3}, "columns"),
        ({**TORCH, **LAYER, **DROPS}, "columns"),
    ],
    ids=str,
)
def test_form_of_features_and_padding(changes, low_rank):
    assert plan_of(**changes).low_rank == low_rank


@pytest.mark.parametrize(
    "fact, changes, others",
    [
        ("needs_all_scores", {"allowed": ("auto", "full")}, {"allowed": ("full", "blockwise")}),
        ("needs_scores", {"reads_scores": True}, {"training": True}),
        # As Keras's layer, whose dropout needs scores, but for the native causal mask.
        ("needs_scores", {"dropout": 0.1, "mask": "pairs"}, {"dropout": 0.1, "mask": "causal"}),
        ("needs_scores", {"dropout": 0.1, "mask": "row"}, {"dropout": 0.0, "mask": "row"}),
        ("needs_scores", DROPS, {"dropout": 0.1, "mask": "row", "has_padding": True}),
        ("values_fit", {"value_dim": 64}, {"value_dim": 65}),
        ("values_fit", {"value_dim": 65, "num_features": 1}, {"value_dim": 66, "num_features": 1}),
        (
            "values_fit",
            {"value_dim": 72, "num_features": 1, **GPU},
            {"value_dim": 73, "num_features": 1, **GPU},
        ),
        ("values_fit", {"value_dim": 65, **TORCH}, {"value_dim": 65}),
        ("adds_terms", {"num_features": 1}, {"mask": "pairs"}),
        ("adds_terms", {"bias": "row"}, {}),
        ("has_one_axis", {}, {"has_free_axes": True}),
    ],
    ids=str,
)
def test_facts(fact, changes, others):
    assert facts_of(make_case(**changes))[fact]
    assert not facts_of(make_case(**others))[fact]


def test_plan_names_forms_and_sizes():
    assert plan_of(**LOW_RANK) == AttentionPlan("scores", bias="tensor", alignment=1)
    blocks = plan_of(**ROWS, implementation="blockwise")
    assert (blocks.bias, blocks.block_size) == ("rows", BLOCK_SIZE)
    assert plan_of(**LOW_RANK, implementation="blockwise").bias == "features"
    # Rows are asked for where the caller asks for blocks.
    asked = plan_of(**LOW_RANK, block_size=3)
    assert (asked.bias, asked.block_size) == ("rows", 3)
    assert plan_of(bias="tensor", block_size=3).bias == "tensor"
    axes = plan_of(num_axes=2, has_padding=True)
    assert (axes.masks_padding, axes.num_axes) == (True, 2)
    assert plan_of(reads_scores=True).masks_padding
    assert not plan_of(has_padding=True).masks_padding


@pytest.mark.parametrize("platform, alignment", [("cpu", 1), ("gpu", 8), ("tpu", 8)])
def test_only_accelerators_need_aligned_heads(platform, alignment):
    assert plan_of(platform=platform).alignment == alignment


@pytest.mark.parametrize(
    "sizes, size",
    [((13, 0), 13), ((13, 3), 16), ((13, 4), 24), ((13, 4, 1), 17), ((13, 0, 4), 13)],
    ids=str,
)
def test_heads_with_columns_are_aligned(sizes, size):
    assert size_with_columns(*sizes) == size


FULL_ONLY = {"allowed": ("auto", "full"), "names": "Layer with a Bias"}
HOOK = {"has_hook_kernel": True}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"implementation": "features", **ROWS}, "'features' needs.*a bias layer with rows"),
        ({"implementation": "features", **FULL_ONLY}, "'features' needs.*Layer with a Bias"),
        ({"implementation": "features", "bias": "tensor"}, "'features' needs.*no bias layer"),
        ({"implementation": "blockwise", **LAYER}, "'blockwise' needs.*without either"),
        ({"implementation": "blockwise", **FULL_ONLY}, "'blockwise' needs.*Layer with a Bias"),
        ({"block_size": 0}, "`block_size` must be a positive int.*0"),
        ({"block_size": 3, "allows_blocks": False, "names": "Fixed"}, "at once.*=3, Fixed"),
        ({"block_size": 3, "returns_scores": True}, "returns no scores.*return_attention_scores=T"),
        ({"block_size": 3, "num_axes": 2}, "`block_size` needs one.*several sequence axes"),
        ({"block_size": 3, "has_free_axes": True}, "one sequence axis.*several sequence axes"),
        ({"block_size": 3, **LAYER}, "`block_size`, a bias layer needs.*no state"),
        ({**HOOK, "bias": "tensor"}, "kernel of a hook.*Received: a bias"),
        ({**HOOK, **ROWS}, "kernel of a hook.*Received: a bias"),
        ({**HOOK, "mask": "row"}, "kernel of a hook.*Received: a mask"),
        ({**HOOK, **DROPS}, "kernel of a hook.*Received: dropout"),
        ({**HOOK, "returns_scores": True}, "kernel of a hook.*return_attention_scores=True"),
        ({**HOOK, "num_axes": 2}, "kernel of a hook.*several sequence axes"),
    ],
    ids=str,
)
def test_refused_cases(changes, message):
    with pytest.raises(ValueError, match=message):
        checked_plan(make_case(**changes))


@pytest.mark.parametrize(
    "changes, received",
    [
        ({"mask": "pairs"}, "a mask for each query"),
        ({"bias": "tensor"}, "a bias for each query"),
        ({"block_size": 7}, "block_size=7"),
        ({"dtype": "float16"}, "dtype='float16'"),
        ({"returns_scores": True}, "return_attention_scores=True"),
        ({"reads_scores": True, **DROPS}, "dropout=0.1, a hook that needs scores"),
    ],
    ids=str,
)
def test_flash_attention_on_tpus_names_what_it_does_not_take(changes, received):
    message = rf"On TPUs flash.*flash_attention=True with {received}\. Leave"
    with pytest.raises(ValueError, match=message):
        checked_plan(make_case(flash_attention=True, **TPU, **changes))


@pytest.mark.parametrize("changes", [LOW_RANK, {**HOOK, **LOW_RANK}, {"block_size": 3, **ROWS}])
def test_allowed_cases_have_their_plan(changes):
    check_case(make_case(**changes))
    assert checked_plan(make_case(**changes)) == plan_of(**changes)


def terms_case(terms, hooks=(), **kwargs):
    attention = BiasedMultiHeadAttention(3, 5, value_dim=7, dropout=0.1, **kwargs)
    return case_of(attention, terms, (2, 11, 17), (2, 13, 17), hooks)


ROW_MASK, PAIRS = np.ones((2, 1, 13), "bool"), np.ones((2, 11, 13), "bool")


@pytest.mark.parametrize(
    "terms, kind",
    [
        ({}, "none"),
        ({"is_causal": True}, "causal"),
        ({"is_causal": True, "start_index": 3}, "pairs"),
        ({"is_causal": True, "attention_mask": ROW_MASK}, "pairs"),
        ({"sliding_window": 3}, "pairs"),
        ({"attention_mask": ROW_MASK}, "row"),
        ({"attention_mask": PAIRS}, "pairs"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_case_has_the_kind_of_mask(terms, kind):
    assert terms_case(ScoreTerms(**terms)).mask == kind


def test_case_has_the_sizes_of_the_terms():
    features = (np.zeros((1, 11, 1, 3)), np.zeros((1, 13, 1, 3)))
    padding = ops.ones((2, 13), "bool")
    case = terms_case(ScoreTerms(features=(features, features), padding_mask=padding))
    assert (case.num_features, case.has_padding, case.bias) == (6, True, "none")
    assert (case.query_length, case.key_length, case.key_dim, case.value_dim) == (11, 13, 5, 7)
    assert (case.backend, case.dtype, case.dropout) == (keras.backend.backend(), "float32", 0.1)


@pytest.mark.parametrize("shape, kind", [((13,), "row"), ((3, 1, 13), "row"), ((11, 13), "tensor")])
def test_case_has_the_kind_of_bias(shape, kind):
    assert terms_case(ScoreTerms(bias=np.zeros(shape))).bias == kind


def test_case_has_what_the_bias_layer_can_do():
    layer = AbsolutePositionBias(3, 19, rank=4)
    layer.build()
    case = terms_case(ScoreTerms(bias=layer))
    assert (case.bias, case.bias_has_features, case.bias_rank) == ("layer", True, 4)
    assert case.bias_is_learned
    layer.trainable = False
    assert not terms_case(ScoreTerms(bias=layer)).bias_is_learned
    case = terms_case(ScoreTerms(bias=RelativePositionBias(3, 19)))
    assert (case.bias_has_features, case.bias_has_rows, case.bias_rank) == (False, True, 0)
    # The sum with the scores of a hook is a tensor.
    hook = AttentionHook(bias=lambda *_: None)
    assert terms_case(ScoreTerms(bias=layer), (hook,)).bias == "tensor"


def test_implementation_of_a_stack_is_checked_before_the_call():
    attention, layer = BiasedMultiHeadAttention(3, 5), RelativePositionBias(3, 19)
    check_implementation("blockwise", attention, layer)
    match = "'features' needs.*BiasedMultiHeadAttention with the bias layer RelativePositionBias"
    with pytest.raises(ValueError, match=match):
        check_implementation("features", attention, layer)
