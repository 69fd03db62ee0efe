"""From raw text to the inputs of `DietBertMaskedLM`."""

from typing import Any

import keras
import numpy as np
from keras_hub.models import MaskedLMPreprocessor

from keras_diet import validation
from keras_diet.models.diet_bert.diet_bert_preprocessor import DietBertPreprocessor
from keras_diet.pretraining.masking import check_rates, mask_tokens


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertMaskedLMPreprocessor(DietBertPreprocessor, MaskedLMPreprocessor):
    """Tokenize, pack and mask raw text for the masked language modeling task.

    This is `keras_hub.models.BertMaskedLMPreprocessor` for DietBert models. The packed input is
    `[CLS]`, then the tokens of each text followed by `[SEP]`, then padding. Some tokens are
    selected, by the rule of `keras_diet.pretraining.mask_tokens`. A selected token is replaced by
    `[MASK]` or by a random token, or is kept. Each epoch of `fit` has new masks, which depend on
    the seed, the epoch and the index of the batch. Validation has the same masks each time. To
    pretrain on documents, use `keras_diet.pretraining`, which packs full sentences without padding.

    Args:
        tokenizer: A `keras_diet.models.DietBertTokenizer` or `DietBertSentencePieceTokenizer`.
        sequence_length: int. Length of the packed inputs, in tokens. Defaults to `512`.
        truncate: `"round_robin"` or `"waterfall"`. How several texts are shortened to fit.
            Defaults to `"round_robin"`.
        length_buckets: tuple of int or `None`. Shorter lengths to which a batch may be padded, if
            they hold its longest text. Defaults to `None`: all batches have `sequence_length`.
        mask_selection_rate: float. Fraction of the tokens of a text that are selected, but at least
            one token. Defaults to `0.15`.
        mask_selection_length: int. Largest number of selected tokens. Defaults to `96`.
        mask_token_rate: float. Probability that a selected token is replaced by `[MASK]`.
            Defaults to `0.8`.
        random_token_rate: float. Probability that a selected token is replaced by a random one.
            Defaults to `0.1`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        x: A string, a batch of strings, or a tuple of them for texts of several segments.
        y: Must be `None`. The preprocessor makes the labels.
        sample_weight: Must be `None`. The preprocessor makes the weights.

    Returns:
        A tuple `(x, y, sample_weight)` of NumPy arrays. `x` is a dictionary of `"token_ids"`,
        `"segment_ids"`, `"padding_mask"` of shape `(B, sequence_length)` and `"mask_positions"` of
        shape `(B, mask_selection_length)`. `y` holds the original tokens at these positions, and
        `sample_weight` is 1 for selected tokens and 0 for unused positions.

    Raises:
        ValueError: If a text is missing, for an empty batch, for segments of another number than
            texts, and for a `y` or `sample_weight` that is not `None`.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
    preprocessor = keras_diet.models.DietBertMaskedLMPreprocessor(
        keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8
    )
    x, y, sample_weight = preprocessor(["the quick fox", "the foxes"])
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
    """

    makes_labels = True
    is_random = True

    def check_arguments(self) -> None:
        """Raise a `ValueError` if no text fits, or if a rate is not a probability."""
        super().check_arguments()
        validation.positive_int("mask_selection_length", self.mask_selection_length)
        check_rates(self.mask_selection_rate, self.mask_token_rate, self.random_token_rate)

    def make_batch(
        self, x: Any, y: Any, sample_weight: Any, generator: np.random.Generator | None = None
    ) -> tuple[Any, Any, Any]:
        """Return inputs with masks, the tokens behind the masks, and their weights."""
        inputs, _, _ = super().make_batch(x, y, sample_weight)
        features, labels, weights = mask_tokens(
            inputs["token_ids"],
            np.random.default_rng(generator),
            vocabulary_size=self.tokenizer.vocabulary_size(),
            mask_token_id=self.tokenizer.mask_token_id,
            unselectable_token_ids=self.tokenizer.special_token_ids,
            pad_token_id=self.tokenizer.pad_token_id,
            mask_selection_rate=self.mask_selection_rate,
            mask_selection_length=self.mask_selection_length,
            mask_token_rate=self.mask_token_rate,
            random_token_rate=self.random_token_rate,
        )
        masked = {name: features[name] for name in ("token_ids", "mask_positions")}
        return {**inputs, **masked}, labels, weights
