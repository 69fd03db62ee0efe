"""Which program computes attention, and in which form it gets each term.

`make_plan` is a pure function of an `AttentionCase`. The tables that it reads are in
`plan_rules.py`. `plan_checks.py` refuses what cannot be computed.
"""

import dataclasses
from typing import Any

from keras_diet.layers.attention.plan_rules import (
    BIAS_RULES,
    IMPLEMENTATION_RULES,
    LOW_RANK_RULES,
    PROGRAM_RULES,
    first_choice,
)

IMPLEMENTATIONS = ("auto", "full", "features", "blockwise")

# Number of queries whose scores exist at a time in blocks.
BLOCK_SIZE = 256
# Shortest sequence for which "auto" avoids full scores: in general, and with a kernel that takes
# a bias, which needs only the positional scores in full. docs/performance.md has measurements.
LONG = 2048
LONG_WITH_KERNEL = 8192
# Shortest sequence for which a batch of full biases would take too much memory.
SHORT = 512
# Shortest sequence for which the attention kernel of JAX for TPUs is used unasked.
LONG_ON_TPU = 2048
# Up to this number, features are cheaper as a sum of outer products, where sums cost no memory.
FEW_FEATURES = 8
# Kernels on accelerators require head sizes that are a multiple of this number. On CPUs the zeros
# that reach it would only cost time.
ALIGNMENT = 8


@dataclasses.dataclass(frozen=True)
class AttentionCase:
    """What a plan depends on.

    Attributes:
        backend: `"tensorflow"`, `"jax"` or `"torch"`.
        platform: `"cpu"`, `"gpu"` or `"tpu"`.
        dtype: str. Dtype of the computation.
        query_length: int or `None` if it is not known yet.
        key_length: int or `None` if it is not known yet.
        key_dim: int. Size of the heads of queries and keys, without features.
        value_dim: int. Size of the heads of values.
        num_axes: int. Number of sequence axes.
        has_free_axes: bool. Whether there are axes that attention treats like the batch.
        bias: `"none"`, `"row"` (a tensor that is the same for all queries), `"tensor"`, or
            `"layer"`.
        bias_has_features: bool. Whether the bias layer has features.
        bias_has_rows: bool. Whether the bias layer returns the scores of blocks of queries.
        bias_rank: int. Number of features of the bias layer, `0` without features.
        bias_is_learned: bool. Whether the bias needs a gradient.
        num_features: int. Number of other features, without padding.
        has_padding: bool. Whether there is a padding mask.
        mask: `"none"`, `"row"`, `"causal"` (and no other), or `"pairs"`.
        training: bool.
        dropout: float. Dropout rate of the probabilities.
        returns_scores: bool. Whether the caller asks for the probabilities.
        reads_scores: bool. Whether a hook needs scores or probabilities.
        has_hook_kernel: bool. Whether a hook brings a kernel.
        implementation: One of `IMPLEMENTATIONS`.
        allowed: tuple. The implementations that a stack may choose for the attention layer.
        allows_blocks: bool. Whether the attention layer takes a `block_size`.
        block_size: int or `None`. Number of queries in a block, if the caller asks for blocks.
        flash_attention: bool or `None`. The argument of the attention layer.
        reads_memory: bool. Whether keys and values are projected already, as in decoding.
        names: str. The classes of the layers, for messages.
    """

    backend: str
    platform: str
    dtype: str
    query_length: int | None
    key_length: int | None
    key_dim: int
    value_dim: int
    num_axes: int = 1
    has_free_axes: bool = False
    bias: str = "none"
    bias_has_features: bool = False
    bias_has_rows: bool = False
    bias_rank: int = 0
    bias_is_learned: bool = False
    num_features: int = 0
    has_padding: bool = False
    mask: str = "none"
    training: bool = False
    dropout: float = 0.0
    returns_scores: bool = False
    reads_scores: bool = False
    has_hook_kernel: bool = False
    implementation: str = "auto"
    allowed: tuple[str, ...] = IMPLEMENTATIONS
    allows_blocks: bool = True
    block_size: int | None = None
    flash_attention: bool | None = None
    reads_memory: bool = False
    names: str = "attention"

    @property
    def has_one_axis(self) -> bool:
        """Whether attention is over one sequence axis, without other axes."""
        return self.num_axes == 1 and not self.has_free_axes

    @property
    def drops(self) -> bool:
        """Whether dropout changes the probabilities."""
        return self.training and self.dropout > 0

    @property
    def bias_can_be_features(self) -> bool:
        """Whether no scores of the bias need to exist."""
        return self.bias == "none" or self.bias_has_features

    @property
    def bias_can_be_blocks(self) -> bool:
        """Whether the scores of the bias exist for blocks of queries."""
        return self.bias != "layer" or self.bias_has_features or self.bias_has_rows

    @property
    def alignment(self) -> int:
        """The size of heads with columns is a multiple of this number."""
        return 1 if self.platform == "cpu" else ALIGNMENT

    @property
    def is_on_jax_tpu(self) -> bool:
        """Whether JAX computes on TPUs."""
        return (self.backend, self.platform) == ("jax", "tpu")


@dataclasses.dataclass(frozen=True)
class AttentionPlan:
    """How attention is computed.

    Attributes:
        program: `"scores"` (plain products and softmax), `"kernel"` (the fused kernel of the
            backend), `"splash"` (the kernel of JAX for TPUs), `"axes"` (several sequence axes) or
            `"hook"` (the kernel of a hook). A block calls a custom attention layer with one bias
            and masks, which is `"custom"`.
        bias: The form of a bias layer: `"tensor"`, `"features"` or `"rows"` of each block.
        low_rank: The form of features and padding: `"columns"` of the queries and keys, or
            `"tensor"`, added to the bias.
        masks_padding: bool. Whether padding is a mask, so that it is not in the scores.
        block_size: int or `None`. Number of queries whose scores exist at a time.
        num_axes: int. Number of sequence axes.
        alignment: int. Heads with columns have a size that is a multiple of this number.
        batch_first: bool. Whether scores have the axis of the batch before the axis of the heads,
            like a memory of keys. Then several rows of queries may share a row of keys.

    Example:

    ```python
    attention = keras_diet.layers.BiasedMultiHeadAttention(num_heads=4, key_dim=8)
    plan = attention.plan(keras_diet.layers.ScoreTerms(), (2, 10, 32), (2, 10, 32))
    plan.program  # "kernel"
    ```
    """

    program: str
    bias: str = "tensor"
    low_rank: str = "columns"
    masks_padding: bool = False
    block_size: int | None = None
    num_axes: int = 1
    alignment: int = ALIGNMENT
    batch_first: bool = False


def make_plan(case: AttentionCase) -> AttentionPlan:
    """Return the plan for a case. `checked_plan` also refuses what cannot be computed."""
    facts = facts_of(case)
    implementation = first_choice(IMPLEMENTATION_RULES, facts)
    facts |= {
        "is_full": implementation == "full",
        "in_blocks": implementation == "blockwise",
        "uses_splash": _uses_splash(case, implementation),
        "has_full_bias": _has_full_bias(case, implementation),
    }
    facts["program"] = first_choice(PROGRAM_RULES, facts)
    return AttentionPlan(
        program=facts["program"],
        bias=first_choice(BIAS_RULES, facts),
        low_rank=first_choice(LOW_RANK_RULES, facts),
        masks_padding=case.reads_scores or facts["program"] == "axes",
        block_size=(case.block_size or BLOCK_SIZE) if facts["in_blocks"] else None,
        num_axes=case.num_axes,
        alignment=case.alignment,
        batch_first=case.reads_memory,
    )


def _has_full_bias(case, implementation):
    return case.bias in ("tensor", "layer") and implementation == "full"


def facts_of(case: AttentionCase) -> dict[str, Any]:
    """Return the facts of the conditions. `make_plan` adds facts that the tables decide."""
    adds_terms = case.bias != "none" or case.num_features > 0 or case.has_padding
    # Keras's layer computes scores whenever `dropout > 0`. A kernel gives another result for a
    # query that may attend to no key.
    as_keras = not adds_terms and case.mask in ("row", "pairs") and case.dropout > 0
    num_columns = case.num_features + case.has_padding
    takes_bias = kernel_takes_bias(case, num_columns)
    has_gradient = kernel_has_gradient_of_bias(case) or not case.bias_is_learned
    long = LONG_WITH_KERNEL if takes_bias and has_gradient and not case.drops else LONG
    length = case.query_length
    return {
        **vars(case),
        "asks_for_blocks": case.block_size is not None,
        "has_bias_layer": case.bias == "layer",
        "needs_all_scores": case.returns_scores or set(case.allowed) <= {"auto", "full"},
        "is_short": length is not None and length < SHORT,
        "is_long": length is not None and length >= long,
        "bias_can_be_features": case.bias_can_be_features,
        "bias_can_be_blocks": case.bias_can_be_blocks,
        "kernel_takes_features": not case.drops
        and kernel_takes_bias(case, num_columns + case.bias_rank),
        "kernel_takes_bias": takes_bias,
        "has_one_axis": case.has_one_axis,
        "needs_scores": case.returns_scores or case.reads_scores or case.drops or as_keras,
        "is_on_jax_tpu": case.is_on_jax_tpu,
        "values_fit": case.backend != "jax"
        or case.value_dim <= size_with_columns(case.key_dim, num_columns, case.alignment),
        "adds_terms": adds_terms,
        "adds_inside_softmax": case.platform == "tpu",
        "has_few_features": num_columns <= FEW_FEATURES,
    }


def kernel_takes_bias(case: AttentionCase, num_columns: int) -> bool:
    """Whether the backend has a kernel that takes a bias and heads of this size."""
    if case.backend == "torch":
        return case.dtype != "float16"
    # The kernel of cuDNN. Its largest head size is the same on all GPUs that have it.
    size = size_with_columns(case.key_dim, num_columns)
    is_gpu = (case.backend, case.platform) == ("jax", "gpu")
    return is_gpu and case.dtype == "bfloat16" and size <= 128


def kernel_has_gradient_of_bias(case: AttentionCase) -> bool:
    """Whether the kernel takes a bias that needs a gradient. On CPUs PyTorch's does not."""
    return (case.backend, case.platform) != ("torch", "cpu")


def size_with_columns(key_dim: int, num_columns: int, alignment: int = ALIGNMENT) -> int:
    """Return the size of heads with columns for features."""
    return -(-(key_dim + num_columns) // alignment) * alignment if num_columns else key_dim


def _uses_splash(case, implementation):
    lengths = (case.query_length, case.key_length)
    is_long = all(length is not None and length >= LONG_ON_TPU for length in lengths)
    # `False` means that `keras.config.disable_flash_attention` was called.
    wanted = case.flash_attention or (is_long and case.flash_attention is not False)
    takes_terms = (
        implementation != "blockwise"
        and case.has_one_axis
        and case.dtype != "float16"
        and case.mask != "pairs"
        and not _has_full_bias(case, implementation)
    )
    return case.is_on_jax_tpu and bool(wanted) and takes_terms
