"""Which program computes attention, and in which form it gets each term.

`make_plan` decides in four steps, each of which is a function. In each function the first `return`
that is reached decides, and the comment above it says why.
"""

import dataclasses
from typing import Any

import keras

from keras_diet import _backend, validation
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.score_terms import ScoreTerms
from keras_diet.layers.position.bias_layer import has_features, has_rows

IMPLEMENTATIONS = ("auto", "full", "features", "blockwise")

# Number of queries whose scores exist at a time in blocks.
BLOCK_SIZE = 256
# Shortest sequence for which "auto" avoids full scores: in general, and with a kernel that takes
# a bias, which needs only the positional scores in full. docs/performance.md has measurements.
LONG = 2048
LONG_WITH_KERNEL = 8192
# Shortest sequence for which a batch of full biases would take too much memory.
SHORT = 512
# Up to this number, features are cheaper as a sum of outer products, where sums cost no memory.
FEW_FEATURES = 8
# Kernels on accelerators require head sizes that are a multiple of this number. On CPUs the zeros
# that reach it would only cost time.
ALIGNMENT = 8


@dataclasses.dataclass(frozen=True)
class AttentionPlan:
    """How attention is computed.

    Attributes:
        program: `"scores"` (plain products and softmax) or `"kernel"` (the fused kernel of the
            backend). A block calls a custom attention layer with one bias and masks, which is
            `"custom"`.
        bias: The form of a bias layer: `"tensor"`, `"features"` or `"rows"` of each block.
        low_rank: The form of features and padding: `"columns"` of the queries and keys, or
            `"tensor"`, added to the bias.
        masks_padding: bool. Whether padding is a mask, so that it is not in the scores.
        block_size: int or `None`. Number of queries whose scores exist at a time.
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
    alignment: int = ALIGNMENT
    batch_first: bool = False


def make_plan(
    attention: Any,
    terms: ScoreTerms,
    query_length: int | None,
    hooks: tuple[AttentionHook, ...] = (),
    training: bool = False,
    returns_scores: bool = False,
    implementation: str = "full",
    block_size: int | None = None,
    reads_memory: bool = False,
) -> AttentionPlan:
    """Return how a `BiasedMultiHeadAttention` attends with these terms.

    Args:
        attention: The layer.
        terms: The terms.
        query_length: int, or `None` if it is not known yet.
        hooks: All hooks of the call.
        training: bool.
        returns_scores: bool. Whether the caller asks for the probabilities.
        implementation: One of `IMPLEMENTATIONS`. A layer on its own has `"full"`.
        block_size: int or `None`. Number of queries in a block, if the caller asks for blocks.
        reads_memory: bool. Whether keys and values are projected already, as in decoding.

    Raises:
        ValueError: If the layer or the terms exclude blocks that the caller asks for, or no kernel
            can compute this although `flash_attention` is `True`.
    """
    if any(hook.bias is not None for hook in hooks):
        # The scores of the hook are a tensor, and so is their sum with the bias.
        bias_layer, has_bias, is_row = None, True, False
    else:
        bias_layer = terms.bias if terms.has_bias_layer else None
        has_bias = terms.bias is not None
        is_row = has_bias and bias_layer is None and is_one_row(terms.bias)
    if block_size is not None:
        _check_blocks(attention, bias_layer, block_size, returns_scores)
    platform = _backend.platform()
    drops = training and attention.dropout > 0
    reads_scores = any(hook.reads_scores for hook in hooks)
    num_columns = terms.num_features + (terms.padding_mask is not None)
    implementation = _implementation(
        attention,
        query_length,
        bias_layer,
        has_bias=has_bias,
        num_columns=num_columns,
        drops=drops,
        returns_scores=returns_scores,
        implementation=implementation,
        block_size=block_size,
        platform=platform,
    )
    program = _program(
        attention,
        terms,
        adds_terms=has_bias or num_columns > 0,
        num_columns=num_columns,
        needs_scores=returns_scores or reads_scores or drops,
        platform=platform,
    )
    if attention.flash_attention and program == "scores":
        _refuse_flash_attention(attention, returns_scores)
    is_full = implementation == "full"
    low_rank = _form_of_features(
        program,
        is_full=is_full,
        has_full_bias=is_full and has_bias and not is_row,
        is_short=query_length is not None and query_length < SHORT,
        is_few=num_columns <= FEW_FEATURES,
        is_inference_by_scores=not (training or reads_scores or implementation == "blockwise"),
        reads_memory=reads_memory,
        platform=platform,
    )
    in_blocks = implementation == "blockwise"
    return AttentionPlan(
        program=program,
        bias=_form_of_bias(bias_layer, is_full, block_size),
        low_rank=low_rank,
        masks_padding=reads_scores,
        block_size=(block_size or BLOCK_SIZE) if in_blocks else None,
        alignment=_alignment(platform),
        batch_first=reads_memory,
    )


def _implementation(
    attention,
    query_length,
    bias_layer,
    has_bias,
    num_columns,
    drops,
    returns_scores,
    implementation,
    block_size,
    platform,
):
    if block_size is not None:
        return "blockwise"
    # All scores are needed at once.
    if returns_scores or set(attention.implementations) <= {"auto", "full"}:
        return "full"
    # The caller asks for it.
    if implementation != "auto":
        return implementation
    has_gradient = kernel_has_gradient_of_bias(platform) or not is_learned(bias_layer)
    has_kernel = kernel_takes_bias(attention, num_columns, platform) and has_gradient and not drops
    # The scores of short sequences fit into memory.
    if query_length is None or query_length < (LONG_WITH_KERNEL if has_kernel else LONG):
        return "full"
    num_columns += getattr(bias_layer, "rank", 0)
    becomes_features = not has_bias or has_features(bias_layer)
    # The kernel needs no scores in memory.
    if becomes_features and not drops and kernel_takes_bias(attention, num_columns, platform):
        return "features"
    # Memory grows linearly with the length.
    if has_blocks(bias_layer):
        return "blockwise"
    # The bias layer returns all its scores at once.
    return "full"


def _program(attention, terms, adds_terms, num_columns, needs_scores, platform):
    # Kernels return no probabilities and drop none.
    if needs_scores:
        return "scores"
    # Keras's layer computes scores whenever `dropout > 0`. A kernel gives another result for a
    # query that may attend to no key.
    if not adds_terms and attention.dropout > 0 and has_mask(terms):
        return "scores"
    # Kernels overflow in float16, or do not have it.
    if attention.compute_dtype == "float16":
        return "scores"
    backend = keras.backend.backend()
    # Keras calls a kernel for TPUs that ignores a bias.
    if backend == "jax" and platform == "tpu":
        return "scores"
    key_size = size_with_columns(attention.key_dim, num_columns, _alignment(platform))
    # The kernel takes no values larger than the keys.
    if backend == "jax" and attention.value_dim > key_size:
        return "scores"
    # Nothing is added, as in Keras's layer, or the caller requires flash attention.
    if not adds_terms or attention.flash_attention:
        return "kernel"
    return "kernel" if kernel_takes_bias(attention, num_columns, platform) else "scores"


def _form_of_bias(bias_layer, is_full, block_size):
    # No layer has to be asked, or all scores are in memory anyway.
    if bias_layer is None or is_full:
        return "tensor"
    # The caller asks for blocks.
    if block_size is not None and has_rows(bias_layer):
        return "rows"
    # Features take less memory than rows.
    return "features" if has_features(bias_layer) else "rows"


def _form_of_features(
    program,
    is_full,
    has_full_bias,
    is_short,
    is_few,
    is_inference_by_scores,
    reads_memory,
    platform,
):
    on_torch = keras.backend.backend() == "torch"
    # The compiler for TPUs adds a few outer products inside the softmax.
    if program == "scores" and platform == "tpu" and is_few and is_inference_by_scores:
        return "tensor"
    # The kernel reads one bias faster than larger heads.
    if program == "kernel" and on_torch and has_full_bias and is_short:
        return "tensor"
    # Columns would copy the keys of a memory in each step.
    if reads_memory and is_full and is_few and (program == "scores" or on_torch):
        return "tensor"
    # A longer sum in the product of queries and keys costs almost nothing.
    return "columns"


def kernel_takes_bias(attention: Any, num_columns: int, platform: str) -> bool:
    """Whether the backend has a kernel that takes a bias and heads of this size."""
    backend, dtype = keras.backend.backend(), attention.compute_dtype
    if backend == "torch":
        return dtype != "float16"
    # The kernel of cuDNN. Its largest head size is the same on all GPUs that have it.
    size = size_with_columns(attention.key_dim, num_columns)
    return (backend, platform, dtype) == ("jax", "gpu", "bfloat16") and size <= 128


def kernel_has_gradient_of_bias(platform: str) -> bool:
    """Whether the kernel takes a bias that needs a gradient. On CPUs PyTorch's does not."""
    return (keras.backend.backend(), platform) != ("torch", "cpu")


def is_learned(bias_layer: Any) -> bool:
    """Whether a bias layer, or `None`, needs a gradient."""
    is_trainable = bias_layer is not None and bool(bias_layer.trainable_variables)
    return is_trainable and _backend.records_gradients()


def has_blocks(bias_layer: Any) -> bool:
    """Whether the scores of a bias layer, or `None`, exist for blocks of queries."""
    return bias_layer is None or has_features(bias_layer) or has_rows(bias_layer)


def has_mask(terms: ScoreTerms) -> bool:
    """Whether a mask beside padding excludes keys, other than a kernel's own causal mask."""
    is_late = terms.is_causal and not terms.starts_at_zero
    return terms.attention_mask is not None or terms.sliding_window is not None or is_late


def is_one_row(bias: Any) -> bool:
    """Whether a bias is the same for all queries."""
    return len(bias.shape) < 2 or bias.shape[-2] == 1


def size_with_columns(key_dim: int, num_columns: int, alignment: int = ALIGNMENT) -> int:
    """Return the size of heads with columns for features."""
    return -(-(key_dim + num_columns) // alignment) * alignment if num_columns else key_dim


def _alignment(platform):
    return 1 if platform == "cpu" else ALIGNMENT


def check_implementation(implementation: str, attention: Any, bias: Any) -> None:
    """Raise a `ValueError` if a stack of these layers does not have an implementation.

    Args:
        implementation: The argument `attention_implementation`.
        attention: The attention layer of a block.
        bias: The bias layer of a block, or `None`.
    """
    needs = {
        "features": (bias is None or has_features(bias), "`features`"),
        "blockwise": (has_blocks(bias), "`features` or `rows`"),
    }
    if implementation not in needs:
        return
    fits, methods = needs[implementation]
    if not fits or implementation not in getattr(attention, "implementations", ()):
        raise ValueError(
            f"attention_implementation={implementation!r} needs a bias layer with {methods} and "
            f"without state, or none, and attention layers that allow {implementation!r}. "
            f"Received: {type(attention).__name__} with the bias layer {bias}. Pass 'auto' or "
            "'full'."
        )


def _check_blocks(attention, bias_layer, block_size, returns_scores):
    validation.positive_int("block_size", block_size)
    if returns_scores or not attention.attends_in_blocks or not has_blocks(bias_layer):
        raise ValueError(
            "`block_size` needs a layer that attends in blocks, and a bias layer with a method "
            "`rows(query, key, start_index)` and no state such as dropout. It returns no scores. "
            f"Received: block_size={block_size}, {type(attention).__name__}, "
            f"bias={bias_layer}, return_attention_scores={returns_scores}. Leave it at `None`."
        )


def _refuse_flash_attention(attention, returns_scores):
    if returns_scores:
        raise ValueError(
            "Returning attention scores is not supported when flash attention is enabled. Please "
            "disable flash attention to access attention scores."
        )
    raise ValueError(
        "No kernel computes flash attention in float16, on TPUs, with values larger than keys, or "
        "with a hook that needs scores or outputs. Received: flash_attention=True in "
        f"{attention}. Leave it at `None`."
    )
