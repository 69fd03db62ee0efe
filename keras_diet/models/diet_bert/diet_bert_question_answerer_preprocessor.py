"""From raw text to the inputs of `DietBertQuestionAnswerer`."""

import keras

from keras_diet.models.diet_bert.diet_bert_preprocessor import DietBertPreprocessor
from keras_diet.models.hub.question_answerer_preprocessor import HubQuestionAnswererPreprocessor


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertQuestionAnswererPreprocessor(DietBertPreprocessor, HubQuestionAnswererPreprocessor):
    """Cut contexts into windows, and find the answers in them.

    A window is `[CLS]`, the question, `[SEP]`, a part of the context, `[SEP]`, then padding. A
    context that is longer than the window becomes several windows, which overlap. So an example
    becomes one or several rows. A window that does not hold the whole answer has the positions 0,
    `[CLS]`, as in BERT.

    Nothing is cut off: a question that leaves no room for its context raises a `ValueError`.

    Args:
        tokenizer: A tokenizer with `tokenize_with_offsets`, such as
            `keras_diet.models.DietBertTokenizer`.
        sequence_length: int. Length of a window with its question, in tokens. Defaults to `384`.
        doc_stride: int. The distance in tokens between the beginnings of two windows of a context.
            It must be less than the room for the context in a window. Defaults to `128`.
        length_buckets: tuple of int or `None`. Shorter lengths to which a batch with labels may be
            padded, if they hold its longest window. `answer` uses them too. Defaults to `None`: all
            batches have `sequence_length`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        x: A tuple `(questions, contexts)` of two strings, or of two batches of strings.
        y: Answers, or `None`. A dictionary with their `"text"` and `"answer_start"`, the character
            of the context where the text starts. The text `""` with the start -1 means that the
            question has no answer.
        sample_weight: Weights of the examples, or `None`. All windows of an example get its weight.

    Returns:
        A dictionary of `"token_ids"`, `"segment_ids"` and `"padding_mask"` of shape
        `(num_windows, sequence_length)`. With answers, a tuple of the dictionary, a dictionary of
        the positions `"start"` and `"end"` of shape `(num_windows,)` and, if given,
        `sample_weight` of shape `(num_windows,)`.

    Raises:
        ValueError: For texts that are missing or empty, and for batches of different sizes. For a
            question that fills a window, and for a `doc_stride` that would skip tokens. For an
            answer that is not in its context at its start.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es", "?"]
    preprocessor = keras_diet.models.DietBertQuestionAnswererPreprocessor(
        keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8, doc_stride=2
    )
    questions, contexts = ["fox ?"], ["the quick the foxes"]
    answers = {"text": ["the foxes"], "answer_start": [10]}
    x, y = preprocessor((questions, contexts), answers)
    x["token_ids"].shape  # (2, 8)
    y["start"], y["end"]  # [0, 4], [0, 6]
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
     - [Rajpurkar et al., 2018](https://arxiv.org/abs/1806.03822)
    """

    # `[CLS]`, a token of the question, `[SEP]`, a token of the context, `[SEP]`.
    shortest_sequence = 5
