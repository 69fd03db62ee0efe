"""Checks of what users pass to `generate`."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras_hub
import numpy as np

from keras_diet import validation
from keras_diet.models.hub.token_inputs import TokenInput, check_token_inputs
from keras_diet.types import Tensor

AUTO = "auto"
_REMEDY = "Choose 'greedy', 'top_k', or a `BeamSearchSampler`."
_NEED_MORE = (keras_hub.samplers.ContrastiveSampler, keras_hub.samplers.SpeculativeSampler)


def checked_sampler(sampler: Any) -> Any:
    """Return the sampler of a name, or raise a `ValueError` if there is none."""
    found = keras_hub.samplers.get(sampler)
    if not callable(found):
        raise ValueError(
            "`sampler` must be a `keras_hub.samplers.Sampler` or the name of one. Received: "
            f"sampler={sampler!r}. {_REMEDY}"
        )
    if isinstance(found, _NEED_MORE):
        raise ValueError(
            "`sampler` must choose tokens by their logits alone, without hidden states of the "
            f"prompt or a second model. Received: {type(found).__name__}. {_REMEDY}"
        )
    return found


def check_sampler(task: Any) -> None:
    """Raise a `ValueError` unless a task has a sampler that returns one target for a source."""
    # A task that was never compiled has no such attribute.
    sampler = getattr(task, "sampler", None)
    if sampler is None:
        raise ValueError(
            "`generate` needs a compiled model. Received: compile=False. Call `compile` with a "
            "sampler first."
        )
    if getattr(sampler, "return_all_beams", False):
        raise ValueError(
            "`generate` needs a sampler that returns one target for each source. Received: "
            "return_all_beams=True. Compile the model with a sampler without it."
        )


def check_preprocessor(preprocessor: Any, max_length: int | None) -> None:
    """Raise a `ValueError` if a preprocessor cannot make the inputs of `generate`."""
    if preprocessor is None and max_length is not None:
        raise ValueError(
            f"`max_length` needs a preprocessor. Received: max_length={max_length}, "
            "preprocessor=None. Pass `decoder_token_ids` of this length instead."
        )
    if preprocessor is not None and not hasattr(preprocessor, "generate_preprocess"):
        raise ValueError(
            "`generate` needs a preprocessor with `generate_preprocess`, or inputs that are "
            f"preprocessed. Received: {type(preprocessor).__name__}. Set `preprocessor` to a "
            "`DietTransformerSeq2SeqLMPreprocessor` or to `None`."
        )


def checked_stop_tokens(stop_token_ids: Any, vocabulary_size: int) -> Any:
    """Return `"auto"`, `None` or a tuple of tokens, or raise a `ValueError`."""
    if stop_token_ids is None or (isinstance(stop_token_ids, str) and stop_token_ids == AUTO):
        return stop_token_ids
    tokens = tuple(stop_token_ids) if isinstance(stop_token_ids, Iterable) else (None,)
    if not all(
        isinstance(token, (int, np.integer)) and 0 <= token < vocabulary_size for token in tokens
    ):
        raise ValueError(
            '`stop_token_ids` must be "auto", `None`, or a tuple of integers in '
            f"[0, vocabulary_size) = [0, {vocabulary_size}). Received: "
            f"stop_token_ids={stop_token_ids!r}. Put a single token into a tuple."
        )
    # Without any, a target never ends.
    return tuple(map(int, tokens)) or None


def check_max_length(max_length: int | None, backbone: Any) -> None:
    """Raise a `ValueError` if targets would be longer than the model takes."""
    longest = backbone.max_sequence_length
    if validation.optional_positive_int("max_length", max_length) and max_length > longest:
        raise ValueError(
            f"`max_length` must be at most {longest}, the `max_sequence_length` of the backbone. "
            f"Received: max_length={max_length}. Choose a smaller `max_length`."
        )


def check_generate_inputs(
    inputs: Mapping[str, Tensor], token_inputs: Mapping[str, TokenInput]
) -> None:
    """Raise a `ValueError` unless inputs hold tokens of sources, and beginnings of targets."""
    check_token_inputs(inputs, token_inputs)
    masks = {
        side: validation.host_value(inputs[f"{side}_padding_mask"])
        for side in ("encoder", "decoder")
    }
    if masks["encoder"] is not None:
        _check_rows("encoder", masks["encoder"].any(axis=1), "at least one token in each source")
    if masks["decoder"] is not None:
        starts = masks["decoder"][:, 0].astype(bool)
        _check_rows("decoder", starts, "1 for the first token of each target, the start token")


def _check_rows(side, are_right, what):
    if not are_right.all():
        raise ValueError(
            f"`x['{side}_padding_mask']` must have {what}. Received: none in row "
            f"{int(np.argmin(are_right))}. Remove such rows, or correct the mask."
        )
