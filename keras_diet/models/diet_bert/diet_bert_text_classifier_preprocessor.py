"""From raw text to the inputs of `DietBertTextClassifier`."""

import keras
from keras_hub.models import TextClassifierPreprocessor

from keras_diet.models.diet_bert.diet_bert_preprocessor import DietBertPreprocessor


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTextClassifierPreprocessor(DietBertPreprocessor, TextClassifierPreprocessor):
    """Tokenize and pack raw texts, or pairs of them, for classification.

    The same as `keras_hub.models.BertTextClassifierPreprocessor`, for the DietBert models:
    `[CLS]`, the tokens of each text followed by `[SEP]`, padding. Unlike there, a tuple of texts
    is a pair wherever it is passed.

    Args:
        tokenizer: A `keras_diet.models.DietBertTokenizer`.
        sequence_length: int. Length of the packed inputs, in tokens. Defaults to `512`.
        truncate: `"round_robin"` or `"waterfall"`. How several texts are cut to fit. Defaults
            to `"round_robin"`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        x: A string, a batch of strings, or a tuple of them for texts of several segments.
        y: Labels, which are passed on; not text.
        sample_weight: Weights of the examples, which are passed on.

    Returns:
        A dictionary of `"token_ids"`, `"segment_ids"` and `"padding_mask"` of shape
        `(B, sequence_length)`; with labels a tuple of it, `y` and, if given, `sample_weight`.

    Raises:
        ValueError: For an empty batch, segments that are not equally many, texts in lists of lists,
            and text as `y`.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
    preprocessor = keras_diet.models.DietBertTextClassifierPreprocessor(
        keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8
    )
    x = preprocessor((["the quick fox", "the foxes"], ["the fox", "the quick"]))
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
    """
