"""The plan of attention: a situation in each row, and the program and forms that it gets."""

import keras
import numpy as np
import pytest

from keras_diet import _backend
from keras_diet.layers import (
    AbsolutePositionBias,
    AttentionHook,
    BiasedMultiHeadAttention,
    FirePositionBias,
    LinformerMultiHeadAttention,
    RelativeMultiHeadAttention,
    RelativePositionBias,
    ScoreTerms,
    UntiedPositionBias,
)
from keras_diet.layers.attention.plan import (
    ALIGNMENT,
    BLOCK_SIZE,
    FEW_FEATURES,
    LONG,
    LONG_WITH_KERNEL,
    SHORT,
    AttentionPlan,
    check_implementation,
    size_with_columns,
)

pytestmark = pytest.mark.any_backend
HEADS, KEY_DIM, LENGTH = 3, 64, 13


class Scores(keras.layers.Layer):
    """A bias layer with the smallest interface."""

    def call(self, query):
        return keras.ops.zeros((1, HEADS, query.shape[1], query.shape[1]))


def low_rank(**kwargs):
    layer = AbsolutePositionBias(HEADS, 19, rank=kwargs.pop("rank", 5))
    layer.build()
    layer.trainable = kwargs.pop("trainable", False)
    return layer


def features(size):
    return (np.zeros((1, LENGTH, 1, size)), np.zeros((1, LENGTH, 1, size)))


ROWS, TENSOR = RelativePositionBias(HEADS, 19), np.zeros((LENGTH, LENGTH), "float32")
ROWS.build()
TUPE = UntiedPositionBias(HEADS, 5, 19, 7, relative=True)
TUPE.build()
BY_POSITION = FirePositionBias(HEADS)
BY_POSITION.build()
DOCUMENTS = {"document_ids": np.ones((2, LENGTH), "int32")}
PADDING, PAIRS = np.ones((2, LENGTH), "bool"), np.ones((2, LENGTH, LENGTH), "bool")
SCORES_HOOK, BIAS_HOOK = AttentionHook(scores=print), AttentionHook(bias=print)
JAX, TF, TORCH = ({"backend": name} for name in ("jax", "tensorflow", "torch"))
TPU, CUDNN = {"platform": "tpu", **JAX}, {"platform": "gpu", "dtype": "bfloat16", **JAX}
BF16 = {"dtype": "bfloat16"}
DROPS = {"dropout": 0.1, "training": True}
AUTO = {"implementation": "auto"}


def plan_of(backend="jax", platform="cpu", length=LENGTH, terms=None, layer=None, **options):
    """The plan on another backend and platform."""
    names = ("dtype", "dropout", "value_dim", "flash_attention")
    arguments = {name: options.pop(name) for name in names if name in options}
    attention = layer or BiasedMultiHeadAttention(HEADS, KEY_DIM, **arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.backend, "backend", lambda: backend)
        patch.setattr(_backend, "platform", lambda: platform)
        terms = ScoreTerms(**(terms or {}))
        return attention.plan(terms, (2, length, 17), **options)


def words(value):
    """A situation or a result in words, for the id of a test."""
    if not isinstance(value, dict):
        return str(value)
    parts = []
    for name, each in value.items():
        if isinstance(each, dict):
            parts.append(words(each))
        elif isinstance(each, (str, bool, int, float)) or each is None:
            parts.append(f"{name}={each}")
        elif isinstance(each, keras.layers.Layer):
            parts.append(type(each).__name__)
        else:
            parts.append(name)
    return " ".join(parts) or "nothing"


@pytest.mark.parametrize(
    "situation, program",
    [
        # Nothing is added, as in Keras's layer.
        ({}, "kernel"),
        ({"terms": {"attention_mask": PAIRS}}, "kernel"),
        ({**DROPS, **TORCH}, "scores"),
        ({"return_attention_scores": True, **TORCH}, "scores"),
        ({"attention_hook": SCORES_HOOK, **TORCH}, "scores"),
        ({"attention_hook": AttentionHook(output=print), **TORCH}, "scores"),
        # Keras's layer computes scores if it has dropout and a mask, but for a causal mask alone.
        ({"dropout": 0.1, "terms": {"attention_mask": PAIRS}}, "scores"),
        ({"dropout": 0.1, "terms": {"sliding_window": 3}}, "scores"),
        ({"dropout": 0.1, "terms": {"is_causal": True}}, "kernel"),
        ({"dropout": 0.1, "terms": {"is_causal": True, "start_index": 2}}, "scores"),
        ({"dropout": 0.1, "terms": {"attention_mask": PAIRS, "bias": TENSOR}, **TORCH}, "kernel"),
        ({"dtype": "float16", **TORCH}, "scores"),
        (TPU, "scores"),
        ({"platform": "tpu", **TF}, "kernel"),
        ({"value_dim": 65}, "scores"),
        ({"value_dim": 65, **TORCH}, "kernel"),
        ({"value_dim": 72, "terms": {"features": (features(1),)}, **CUDNN}, "kernel"),
        ({"value_dim": 73, "terms": {"features": (features(1),)}, **CUDNN}, "scores"),
        # Only some backends have a kernel that takes a bias.
        ({"attention_hook": BIAS_HOOK}, "scores"),
        ({"terms": {"padding_mask": PADDING}, **TF}, "scores"),
        ({"terms": {"padding_mask": PADDING}, "flash_attention": True, **TF}, "kernel"),
        ({"terms": {"bias": TENSOR}, **CUDNN}, "kernel"),
        ({"terms": {"bias": TENSOR}, **BF16}, "scores"),
        ({"terms": {"bias": TENSOR}, "platform": "gpu"}, "scores"),
        ({"terms": {"features": (features(64),)}, **CUDNN}, "kernel"),
        ({"terms": {"features": (features(65),)}, **CUDNN}, "scores"),
    ],
    ids=words,
)
def test_program(situation, program):
    assert plan_of(**situation).program == program


class OfContent(RelativePositionBias):
    """Scores that depend on distances and on hidden states."""

    reads_content = True


CONTENT = OfContent(HEADS, 19)
CONTENT.build()
INDEXED = {"implementation": "indexed"}
FLEX = {"length": LONG, "platform": "gpu", **TORCH, **INDEXED}
LOW_RANK, WINDOW = {"bias": low_rank()}, {"sliding_window": 3}


@pytest.mark.parametrize(
    "situation, program, form",
    [
        # A caller asks for a kernel of indices. What it cannot compute is as with "auto".
        ({**FLEX, "terms": {"bias": ROWS}}, "flex", "distances"),
        ({**FLEX, **DROPS, "terms": {"bias": TUPE, **DOCUMENTS}}, "scores", "tensor"),
        ({**TPU, **INDEXED, "terms": {"bias": TUPE, **WINDOW}}, "pallas", "distances"),
        ({**FLEX, "terms": {"bias": ROWS}, "training": True}, "flex", "distances"),
        ({**FLEX, "terms": DOCUMENTS}, "flex", "low_rank"),
        ({**FLEX, "terms": LOW_RANK}, "flex", "low_rank"),
        ({**FLEX, "terms": {"bias": ROWS}, "length": None}, "kernel", "tensor"),
        ({**FLEX, "terms": {"bias": ROWS}, **DROPS}, "scores", "rows"),
        ({**FLEX, "terms": {"bias": ROWS}, "dtype": "float16"}, "scores", "rows"),
        ({**FLEX, "terms": {"bias": ROWS}, "attention_hook": SCORES_HOOK}, "scores", "tensor"),
        ({**FLEX, "terms": {"bias": ROWS}, "attention_hook": BIAS_HOOK}, "kernel", "tensor"),
        ({**FLEX, "terms": {"bias": ROWS}, "flash_attention": True}, "kernel", "tensor"),
        ({**FLEX, "terms": {"bias": ROWS}, "reads_memory": True}, "kernel", "tensor"),
        ({**FLEX, "terms": {"bias": ROWS, "start_index": 2}}, "kernel", "tensor"),
        ({**FLEX, "terms": {"bias": ROWS, "attention_mask": PAIRS}}, "kernel", "tensor"),
        ({**FLEX, "terms": {"bias": BY_POSITION}}, "kernel", "tensor"),
        # There is no one score for each distance if scores depend on hidden states.
        ({**FLEX, "terms": {"bias": CONTENT, **WINDOW}}, "kernel", "tensor"),
        ({**FLEX, "terms": {"bias": TENSOR, **WINDOW}}, "kernel", "tensor"),
        ({**FLEX, "block_size": 3, "terms": {"bias": ROWS}}, "kernel", "rows"),
        # No GPU and no TPU has measured these kernels, so "auto" does not take them.
        ({**FLEX, **AUTO, "terms": {"bias": ROWS}}, "kernel", "tensor"),
        ({**FLEX, **AUTO, **TPU, "terms": {"bias": ROWS}}, "scores", "rows"),
        ({**INDEXED, **JAX, "terms": {"bias": ROWS}}, "pallas", "distances"),
        ({**INDEXED, **JAX, "terms": {"bias": BY_POSITION}}, "scores", "tensor"),
    ],
    ids=words,
)
def test_terms_from_indices(situation, program, form):
    plan = plan_of(**situation)
    assert (plan.program, plan.bias) == (program, form)
    if plan.reads_indices:
        assert (plan.columns, plan.masks_padding, plan.block_size) == (True, True, None)
        assert plan.alignment == (ALIGNMENT if situation.get("platform") else 1)


LONG_LOW_RANK = {"length": LONG, "terms": {"bias": low_rank()}, **AUTO}
LONG_LEARNED = {**LONG_LOW_RANK, **TORCH, "terms": {"bias": low_rank(trainable=True)}}
KERNEL_LENGTH = {"length": LONG_WITH_KERNEL, **AUTO}


def terms_of_rank(rank):
    return {"bias": low_rank(rank=rank), "features": (features(7),), "padding_mask": PADDING}


@pytest.mark.parametrize(
    "situation, form, in_blocks",
    [
        # A layer on its own has all scores.
        ({"length": LONG, "terms": {"bias": low_rank()}}, "tensor", False),
        ({"length": LONG - 1, **AUTO, "terms": {"bias": low_rank()}}, "tensor", False),
        ({"length": None, **AUTO, "terms": {"bias": low_rank()}}, "tensor", False),
        (LONG_LOW_RANK, "low_rank", True),
        ({**LONG_LOW_RANK, "terms": {"bias": ROWS}}, "rows", True),
        ({**LONG_LOW_RANK, "terms": {"bias": Scores()}}, "tensor", False),
        ({**LONG_LOW_RANK, "terms": {}}, "tensor", True),
        ({**LONG_LOW_RANK, "return_attention_scores": True}, "tensor", False),
        # PyTorch's kernel takes a bias, but on CPUs not the gradient of a bias.
        ({**LONG_LOW_RANK, **TORCH}, "tensor", False),
        ({**LONG_LOW_RANK, **TORCH, **DROPS}, "low_rank", True),
        ({**KERNEL_LENGTH, **TORCH, "terms": {"bias": low_rank()}}, "low_rank", False),
        ({**KERNEL_LENGTH, **TORCH, "terms": {"bias": ROWS}}, "rows", True),
        ({**KERNEL_LENGTH, **TORCH}, "tensor", False),
        (LONG_LEARNED, "low_rank", False),
        ({**LONG_LEARNED, "platform": "gpu"}, "tensor", False),
        # Heads of 64, 7 features, padding and the rank: up to 128 fit into cuDNN's kernel.
        ({**CUDNN, **KERNEL_LENGTH, "terms": terms_of_rank(56)}, "low_rank", False),
        ({**CUDNN, **KERNEL_LENGTH, "terms": terms_of_rank(57)}, "low_rank", True),
        # The caller asks for it.
        ({"implementation": "features", "terms": {"bias": low_rank()}}, "low_rank", False),
        ({"implementation": "blockwise", "terms": {"bias": low_rank()}}, "low_rank", True),
        ({"implementation": "blockwise", "terms": {"bias": ROWS}}, "rows", True),
        ({"block_size": 3, "terms": {"bias": low_rank()}}, "rows", True),
        # Scores by the positions in documents are gathered, or their features. Documents are a
        # mask of pairs, unless queries come in blocks.
        ({"terms": {"bias": low_rank(), **DOCUMENTS}}, "low_rank", False),
        ({"terms": {"bias": ROWS, **DOCUMENTS}}, "tensor", False),
        ({"block_size": 3, "terms": {"bias": low_rank(), **DOCUMENTS}}, "low_rank", True),
        ({"block_size": 3, "terms": {"bias": ROWS, **DOCUMENTS}}, "rows", True),
        ({"block_size": 3, "terms": {"bias": BY_POSITION, **DOCUMENTS}}, "tensor", True),
        ({**KERNEL_LENGTH, **TORCH, "terms": {**DOCUMENTS, "bias": low_rank()}}, "low_rank", True),
        # These layers have all scores at once.
        ({**KERNEL_LENGTH, "layer": RelativeMultiHeadAttention(HEADS, 5, 3)}, "tensor", False),
    ],
    ids=words,
)
def test_form_of_a_bias(situation, form, in_blocks):
    plan = plan_of(**situation)
    size = situation.get("block_size", BLOCK_SIZE)
    assert (plan.bias, plan.block_size) == (form, size if in_blocks else None)


LAYER = {
    dtype: BiasedMultiHeadAttention(12, KEY_DIM, dtype=dtype) for dtype in ("bfloat16", "float32")
}
IN_BLOCKS = {"implementation": "blockwise", "terms": {"bias": ROWS}, "platform": "gpu"}
CUDNN_BLOCKS = {**IN_BLOCKS, **JAX, "layer": LAYER["bfloat16"]}


@pytest.mark.parametrize(
    "situation, size",
    [
        # 256 MiB hold 2^27 scores in bfloat16: 1365 rows for 8192 keys and 12 heads.
        ({**CUDNN_BLOCKS, "length": 8192, "implementation": "auto"}, 1280),
        ({**CUDNN_BLOCKS, "length": 16384}, 512),
        ({**CUDNN_BLOCKS, "length": 65536}, BLOCK_SIZE),
        ({**IN_BLOCKS, **TORCH, "layer": LAYER["float32"], "length": 8192}, 512),
        # Scores of plain products have an axis of the batch, and so has a mask of documents.
        ({**CUDNN_BLOCKS, "length": 8192, "layer": LAYER["float32"]}, BLOCK_SIZE),
        ({**CUDNN_BLOCKS, "length": 8192, "terms": {"bias": ROWS, **DOCUMENTS}}, BLOCK_SIZE),
    ],
    ids=words,
)
def test_number_of_queries_in_a_block(situation, size):
    assert plan_of(**situation).block_size == size


FEW, MANY = (features(FEW_FEATURES),), (features(FEW_FEATURES + 1),)
MEMORY = {"reads_memory": True, "terms": {"features": FEW}}


@pytest.mark.parametrize(
    "situation, columns",
    [
        ({"terms": {"features": FEW}}, True),
        # The compiler for TPUs adds products inside the softmax.
        ({**TPU, "terms": {"features": FEW}}, False),
        ({**TPU, "terms": {"features": MANY}}, True),
        ({**TPU, "terms": {"features": FEW}, "training": True}, True),
        ({**TPU, "terms": {"features": FEW}, "implementation": "blockwise"}, True),
        ({**TPU, "terms": {"features": FEW}, "attention_hook": SCORES_HOOK}, True),
        ({**TPU, "terms": {"bias": low_rank()}, "implementation": "features"}, True),
        ({**TORCH, "terms": {"bias": low_rank(), **DOCUMENTS}}, True),
        # The kernel of PyTorch reads one bias faster than larger heads.
        ({**TORCH, "terms": {"bias": ROWS}, "length": SHORT - 1}, False),
        ({**TORCH, "terms": {"bias": ROWS}, "length": SHORT}, True),
        ({**TORCH, "terms": {"padding_mask": PADDING}}, True),
        ({**TORCH, "terms": {"bias": TENSOR}, "block_size": 3}, True),
        ({**TORCH, **DROPS, "terms": {"bias": ROWS}}, True),
        # Columns would copy the keys of a memory in each step.
        (MEMORY, False),
        ({**MEMORY, **TORCH}, False),
        ({**MEMORY, "terms": {"features": MANY}}, True),
        ({**MEMORY, "block_size": 3}, True),
        ({**MEMORY, "flash_attention": True}, True),
    ],
    ids=words,
)
def test_form_of_features_and_padding(situation, columns):
    plan = plan_of(**situation)
    assert (plan.columns, plan.batch_first) == (columns, "reads_memory" in situation)


def test_a_plan_without_anything_special():
    assert plan_of(terms={"bias": low_rank()}) == AttentionPlan("scores", alignment=1)


@pytest.mark.parametrize(
    "situation, program, masks_padding",
    [
        ({}, "scores", False),
        ({"attention_hook": SCORES_HOOK}, "scores", True),
        # Linformer leaves padding out before it projects the keys.
        ({"layer": LinformerMultiHeadAttention(HEADS, 5, 9, 3)}, "kernel", True),
    ],
    ids=words,
)
def test_padding_is_a_mask(situation, program, masks_padding):
    plan = plan_of(terms={"padding_mask": PADDING}, **situation)
    assert (plan.program, plan.masks_padding) == (program, masks_padding)


def test_sizes_of_heads_with_columns():
    aligned = [plan_of(platform=name).alignment for name in ("cpu", "gpu", "tpu")]
    assert aligned == [1, ALIGNMENT, ALIGNMENT]
    sizes = {(13, 0): 13, (13, 3): 16, (13, 4): 24, (13, 4, 1): 17}
    assert {arguments: size_with_columns(*arguments) for arguments in sizes} == sizes


def test_without_gradients_a_learned_bias_is_no_obstacle():
    import torch

    with torch.no_grad():
        assert plan_of(**LONG_LEARNED).bias == "tensor"


def test_flash_attention_is_refused_without_a_kernel():
    with pytest.raises(ValueError, match=r"flash attention is enabled.*flash_attention=True in"):
        plan_of(dtype="float16", flash_attention=True)


SHAW = RelativeMultiHeadAttention(HEADS, 5, 3)


@pytest.mark.parametrize(
    "implementation, attention, bias",
    [
        ("features", SHAW, None),
        ("blockwise", SHAW, None),
        ("blockwise", BiasedMultiHeadAttention(HEADS, 5), Scores()),
        ("indexed", SHAW, None),
        ("indexed", BiasedMultiHeadAttention(HEADS, 5), BY_POSITION),
        ("indexed", BiasedMultiHeadAttention(HEADS, 5), CONTENT),
    ],
    ids=["features", "blockwise", "scores", "indexed", "positions", "content"],
)
def test_implementations_that_a_stack_refuses(implementation, attention, bias):
    with pytest.raises(ValueError, match=f"attention_implementation='{implementation}' needs"):
        check_implementation(implementation, attention, bias)


def test_tensorflow_has_no_kernel_for_indices(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "tensorflow")
    with pytest.raises(ValueError, match=r"'indexed' is a kernel of PyTorch and JAX.*tensorflow"):
        check_implementation("indexed", BiasedMultiHeadAttention(HEADS, 5), ROWS)
