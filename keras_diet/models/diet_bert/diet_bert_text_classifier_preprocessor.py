"""From raw text to the inputs of `DietBertTextClassifier`."""

import keras
from keras_hub.models import TextClassifierPreprocessor

from keras_diet.models.diet_bert.diet_bert_preprocessor import DietBertPreprocessor


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTextClassifierPreprocessor(DietBertPreprocessor, TextClassifierPreprocessor):
    """Tokenize and pack raw texts, or pairs of texts, for classification.

    This is `keras_hub.models.BertTextClassifierPreprocessor` for DietBert models. The packed input
    is `[CLS]`, then the tokens of each text followed by `[SEP]`, then padding. Unlike in KerasHub,
    a tuple of texts is always a pair.

    Args:
        tokenizer: A `keras_diet.models.DietBertTokenizer` or `DietBertSentencePieceTokenizer`.
        sequence_length: int. Length of the packed inputs, in tokens. Defaults to `512`.
        truncate: `"round_robin"` or `"waterfall"`. How several texts are shortened to fit.
            Defaults to `"round_robin"`.
        length_buckets: tuple of int or `None`. Shorter lengths to which a batch may be padded, if
            they hold its longest text. Defaults to `None`: all batches have `sequence_length`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        x: A string, a batch of strings, or a tuple of them for texts of several segments.
        y: Labels, which are returned unchanged. They must not be text.
        sample_weight: Weights of the examples, which are returned unchanged.

    Returns:
        NumPy arrays: a dictionary of `"token_ids"`, `"segment_ids"` and `"padding_mask"` of shape
        `(B, sequence_length)`. With labels, a tuple of the dictionary, `y` and, if given,
        `sample_weight`.

    Raises:
        ValueError: If a text is missing, for an empty batch, and for segments, labels or weights of
            another number than texts.

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
