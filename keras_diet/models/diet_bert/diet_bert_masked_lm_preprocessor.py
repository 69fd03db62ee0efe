"""From raw text to the inputs of `DietBertMaskedLM`."""

import keras
from keras_hub.models import MaskedLMPreprocessor

from keras_diet.models.diet_bert.diet_bert_preprocessor import DietBertPreprocessor


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertMaskedLMPreprocessor(DietBertPreprocessor, MaskedLMPreprocessor):
    """Tokenize, pack and mask raw text for the masked language modeling task.

    The same as `keras_hub.models.BertMaskedLMPreprocessor`, for the DietBert models: `[CLS]`,
    the tokens of each text followed by `[SEP]`, padding; then some tokens are selected and
    replaced by `[MASK]`, by a random token, or left as they are. To pretrain on documents,
    `keras_diet.pretraining` packs full sentences instead and wastes no padding.

    Args:
        tokenizer: A `keras_diet.models.DietBertTokenizer`.
        sequence_length: int. Length of the packed inputs, in tokens. Defaults to `512`.
        truncate: `"round_robin"` or `"waterfall"`. How several texts are cut to fit. Defaults
            to `"round_robin"`.
        mask_selection_rate: float. Probability that a token is selected. Defaults to `0.15`.
        mask_selection_length: int. Largest number of selected tokens. Defaults to `96`.
        mask_token_rate: float. Probability that a selected token is replaced by `[MASK]`.
            Defaults to `0.8`.
        random_token_rate: float. Probability that a selected token is replaced by a random one.
            Defaults to `0.1`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        x: A string, a batch of strings, or a tuple of them for texts of several segments.
        y: Must be `None`; the labels are made here.
        sample_weight: Must be `None`; the weights are made here.

    Returns:
        A tuple `(x, y, sample_weight)`: a dictionary of `"token_ids"`, `"segment_ids"`,
        `"padding_mask"` of shape `(B, sequence_length)` and `"mask_positions"` of shape
        `(B, mask_selection_length)`; the original tokens and 0/1 weights of these positions.

    Raises:
        ValueError: For an empty batch, segments that are not equally many, texts in lists of lists,
            and a `y` or `sample_weight` that is not `None`.

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

    def call(self, x, y=None, sample_weight=None):
        if y is not None or sample_weight is not None:
            raise ValueError(
                "`y` and `sample_weight` must be `None`, since masked language modeling makes its "
                "own. Received: labels or weights beside the text"
            )
        return super().call(x)
