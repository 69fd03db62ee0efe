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
from keras_diet.layers.position.position_bias import (
    has_features,
    has_rows,
    has_scores_by_distance,
    is_distance_only,
)

IMPLEMENTATIONS = ("auto", "full", "features", "blockwise", "indexed")

# Programs whose kernels compute terms from indices, and never have a row of scores in memory.
INDEXED = {"torch": "flex", "jax": "pallas"}
# Number of queries whose scores exist at a time in blocks.
BLOCK_SIZE = 256
# Memory for the bias of a block in a kernel on a GPU, which computes more queries in less time.
BIAS_MEMORY = 256 * 2**20
# Shortest sequence for which "auto" avoids full scores: in general, and with a kernel that takes
# a bias, which needs only the positional scores in full. The page on cost and speed has figures.
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
        program: `"scores"` (plain products and softmax), `"kernel"` (the fused kernel of the
            backend), or a kernel that computes the terms from indices: `"flex"` (FlexAttention on
            PyTorch) or `"pallas"` (JAX).
        bias: The form of a bias layer: the `"tensor"` of its scores, its `"low_rank"` features, the
            `"rows"` of each block, or its parts: one score for each of the `"distances"`, features,
            or both.
        columns: bool. Whether features and padding become columns of the queries and keys.
            Otherwise they are added to the bias.
        masks_padding: bool. Whether padding is a mask, so that it is not in the scores.
        block_size: int or `None`. Number of queries whose scores exist at a time.
        alignment: int. Heads with columns have a size that is a multiple of this number.
        batch_first: bool. Whether scores have the axis of the batch before the axis of the heads,
            like a memory of keys. Then several rows of queries may share a row of keys.
        flash_attention: bool or `None`. Whether the kernel must be flash attention.

    Example:

    ```python
    attention = keras_diet.layers.BiasedMultiHeadAttention(num_heads=4, key_dim=8)
    plan = attention.plan(keras_diet.layers.ScoreTerms(), (2, 10, 32))
    plan.program  # "kernel"
    ```
    """

    program: str
    bias: str = "tensor"
    columns: bool = True
    masks_padding: bool = False
    block_size: int | None = None
    alignment: int = ALIGNMENT
    batch_first: bool = False
    flash_attention: bool | None = None

    @property
    def reads_indices(self) -> bool:
        """Whether the program computes bias and masks from indices."""
        return self.program in INDEXED.values()


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
    platform = _backend.platform()
    has_bias, bias_layer = terms.bias is not None, terms.bias if terms.has_bias_layer else None
    adds_tensor = terms.pair_scores is not None or any(hook.bias is not None for hook in hooks)
    drops = training and attention.dropout > 0
    reads_scores = any(hook.reads_scores for hook in hooks)
    needs_scores = returns_scores or reads_scores or drops
    if implementation == "indexed" and block_size is None:
        needs_others = needs_scores or adds_tensor or reads_memory
        if not needs_others and _is_indexed(attention, terms, query_length):
            program = INDEXED[keras.backend.backend()]
            form = "distances" if has_scores_by_distance(bias_layer) else "low_rank"
            return AttentionPlan(program, form, masks_padding=True, alignment=_alignment(platform))
        implementation = "auto"
    by_position = terms.document_ids is not None and not is_distance_only(bias_layer)
    is_gathered = by_position and bias_layer is not None and not has_features(bias_layer)
    if is_gathered or adds_tensor:
        # The scores of pairs or of a hook are a tensor, so their sum with the bias is a tensor.
        # Scores that are gathered by the positions in documents are a tensor, too.
        has_bias, bias_layer = True, None
    num_columns = terms.num_features + (terms.padding_mask is not None)
    if block_size is not None:
        _check_blocks(attention, bias_layer, block_size, returns_scores)
        implementation = "blockwise"
    elif returns_scores or set(attention.implementations) <= {"auto", "full"}:
        # All scores are needed at once.
        implementation = "full"
    elif implementation == "auto":
        implementation = _implementation(
            attention, terms, query_length, bias_layer, has_bias, num_columns, drops, platform
        )
    elif (
        implementation == "blockwise"
        and query_length is None
        and keras.backend.backend() != "tensorflow"
    ):
        # A program for any length cannot have a loop over blocks, except in TensorFlow.
        implementation = "full"
    if by_position and bias_layer is not None and implementation == "full":
        # Gathered features are smaller than gathered scores.
        implementation = "features"
    program = _program(attention, terms, has_bias, num_columns, needs_scores, platform)
    if attention.flash_attention and program == "scores":
        # It begins with the message of Keras.
        raise ValueError(
            "Returning attention scores is not supported when flash attention is enabled. Please "
            "disable flash attention to access attention scores. Nor does a kernel compute in "
            "float16, on TPUs, with values larger than keys, or with a hook that needs scores. "
            f"Received: flash_attention=True in {attention}. Leave it at `None`."
        )
    is_full, in_blocks = implementation == "full", implementation == "blockwise"
    form_of_bias = _form_of_bias(bias_layer, is_full, block_size, by_position)
    sums_in_softmax = platform == "tpu" and not (training or reads_scores or in_blocks)
    sums_in_softmax = sums_in_softmax and form_of_bias != "low_rank"
    has_short_bias = has_bias and is_full and query_length is not None and query_length < SHORT
    columns = _makes_columns(
        program, num_columns, sums_in_softmax, has_short_bias, reads_memory and is_full
    )
    has_kernel_on_gpu = program == "kernel" and platform == "gpu" and form_of_bias == "rows"
    default_size = BLOCK_SIZE
    if has_kernel_on_gpu and query_length is not None and terms.document_ids is None:
        default_size = _block_size(attention, query_length)
    return AttentionPlan(
        program=program,
        bias=form_of_bias,
        columns=columns,
        masks_padding=reads_scores,
        block_size=block_size or default_size if in_blocks else None,
        alignment=_alignment(platform),
        batch_first=reads_memory,
        flash_attention=attention.flash_attention,
    )


def _is_indexed(attention, terms, query_length):
    """Whether a kernel can compute these terms from indices, for a caller who asks for it.

    "auto" does not ask until `python -m benchmarks.gpu` has measured these kernels on a GPU.
    """
    # An open length has another program.
    if query_length is None or not terms.starts_at_zero:
        return False
    # It has functions for the other masks, for one score for each distance, and for features.
    bias = terms.bias
    has_parts = bias is None or has_scores_by_distance(bias) or has_features(bias)
    if terms.attention_mask is not None or not has_parts:
        return False
    # The caller requires flash attention, or a kernel overflows.
    return not attention.flash_attention and attention.compute_dtype != "float16"


def _implementation(
    attention, terms, query_length, bias_layer, has_bias, num_columns, drops, platform
):
    """Return what "auto" means."""
    has_kernel = not drops and kernel_takes_bias(attention, num_columns, platform)
    has_kernel = has_kernel and kernel_has_gradient(bias_layer, platform)
    # The scores of short sequences fit into memory.
    if query_length is None or query_length < (LONG_WITH_KERNEL if has_kernel else LONG):
        return "full"
    becomes_features = not has_bias or has_features(bias_layer)
    num_columns += getattr(bias_layer, "rank", 0)
    # The kernel needs no scores in memory, unless documents are a mask.
    needs_mask = terms.document_ids is not None
    has_kernel = not (drops or needs_mask) and kernel_takes_bias(attention, num_columns, platform)
    if becomes_features and has_kernel:
        return "features"
    # Memory grows linearly with the length, unless the bias layer returns all its scores at once.
    return "blockwise" if has_blocks(bias_layer) else "full"


def _program(attention, terms, has_bias, num_columns, needs_scores, platform):
    # Kernels return no probabilities and drop none.
    if needs_scores:
        return "scores"
    adds_terms = has_bias or num_columns > 0
    # Keras's layer computes scores whenever `dropout > 0`. A kernel gives another result for a
    # query that may attend to no key.
    if not adds_terms and attention.dropout > 0 and has_mask(terms):
        return "scores"
    # Kernels overflow in float16, or do not have it.
    if attention.compute_dtype == "float16":
        return "scores"
    is_jax = keras.backend.backend() == "jax"
    # Keras calls a kernel for TPUs that ignores a bias.
    if is_jax and platform == "tpu":
        return "scores"
    key_size = size_with_columns(attention.key_dim, num_columns, _alignment(platform))
    # The kernel takes no values larger than the keys.
    if is_jax and attention.value_dim > key_size:
        return "scores"
    # Nothing is added, as in Keras's layer, or the caller requires flash attention.
    if not adds_terms or attention.flash_attention:
        return "kernel"
    return "kernel" if kernel_takes_bias(attention, num_columns, platform) else "scores"


def _form_of_bias(bias_layer, is_full, block_size, by_position):
    # No layer has to be asked, or all scores are in memory anyway.
    if bias_layer is None or is_full:
        return "tensor"
    # The caller asks for blocks. Only features can be gathered by position.
    if block_size is not None and has_rows(bias_layer) and not by_position:
        return "rows"
    # Features take less memory than rows.
    return "low_rank" if has_features(bias_layer) else "rows"


def _block_size(attention, length):
    """Return the number of queries whose bias for `length` keys has `BIAS_MEMORY`.

    The bias is the same for all examples, unless it holds a mask of documents.
    """
    row = attention.num_heads * length * (2 if attention.compute_dtype == "bfloat16" else 4)
    return max(BLOCK_SIZE, BIAS_MEMORY // row // BLOCK_SIZE * BLOCK_SIZE)


def _makes_columns(program, num_columns, sums_in_softmax, has_short_bias, reads_memory):
    on_torch = keras.backend.backend() == "torch"
    is_few = num_columns <= FEW_FEATURES
    # The compiler for TPUs adds a few outer products inside the softmax.
    if program == "scores" and sums_in_softmax and is_few:
        return False
    # The kernel reads one bias faster than larger heads.
    if program == "kernel" and on_torch and has_short_bias:
        return False
    # Columns would copy the keys of a memory in each step.
    if reads_memory and is_few and (program == "scores" or on_torch):  # noqa: SIM103
        return False
    # A longer sum in the product of queries and keys costs almost nothing.
    return True


def kernel_takes_bias(attention: Any, num_columns: int, platform: str) -> bool:
    """Whether the backend has a kernel that takes a bias and heads of this size."""
    backend, dtype = keras.backend.backend(), attention.compute_dtype
    if backend == "torch":
        return dtype != "float16"
    # The kernel of cuDNN. Its largest head size is the same on all GPUs that have it.
    size = size_with_columns(attention.key_dim, num_columns)
    return (backend, platform, dtype) == ("jax", "gpu", "bfloat16") and size <= 128


def kernel_has_gradient(bias_layer: Any, platform: str) -> bool:
    """Whether the kernel has the gradient of a bias, if there is one. On CPUs PyTorch's has not."""
    is_learned = bias_layer is not None and bool(bias_layer.trainable_variables)
    has_gradient = (keras.backend.backend(), platform) != ("torch", "cpu")
    return has_gradient or not (is_learned and _backend.records_gradients())


def has_blocks(bias_layer: Any) -> bool:
    """Whether the scores of a bias layer, or `None`, exist for blocks of queries."""
    return bias_layer is None or has_features(bias_layer) or has_rows(bias_layer)


def has_mask(terms: ScoreTerms) -> bool:
    """Whether a mask beside padding excludes keys, other than a kernel's own causal mask."""
    is_late = terms.is_causal and not terms.starts_at_zero
    return terms.attention_mask is not None or terms.sliding_window is not None or is_late


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
    has_columns = bias is None or has_features(bias)
    fits = {"features": has_columns, "blockwise": has_blocks(bias)}
    fits["indexed"] = has_columns or has_scores_by_distance(bias)
    allowed = getattr(attention, "implementations", ("auto", "full"))
    if implementation == "indexed" and keras.backend.backend() not in INDEXED:
        raise ValueError(
            "attention_implementation='indexed' is a kernel of PyTorch and JAX. Received: the "
            f"backend {keras.backend.backend()}. Pass 'auto'."
        )
    if implementation not in allowed or not fits.get(implementation, True):
        raise ValueError(
            f"attention_implementation={implementation!r} needs a bias layer with `features`, or "
            "for 'blockwise' with `rows` and without state, or for 'indexed' with `distance_only` "
            "or `parts`, or none, and attention layers that allow it. Pass 'auto' or 'full'. "
            f"Received: {type(attention).__name__} with the bias layer {type(bias).__name__}."
        )


def _check_blocks(attention, bias_layer, block_size, returns_scores):
    validation.positive_int("block_size", block_size)
    if returns_scores or not attention.attends_in_blocks or not has_blocks(bias_layer):
        raise ValueError(
            "`block_size` needs a layer that attends in blocks, and a bias layer with a method "
            "`rows(query, key, start_index)` and no state such as dropout. It returns no scores. "
            f"Received: block_size={block_size}, {type(attention).__name__}, the bias layer "
            f"{type(bias_layer).__name__}, return_attention_scores={returns_scores}. Leave it at "
            "`None`."
        )
