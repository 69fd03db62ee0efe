"""Answers to questions, as parts of texts, with a DietBert backbone."""

import keras
from keras_hub.models import Task

from keras_diet.models.diet_bert.diet_bert_task import DietBertPreprocessor, DietBertTask
from keras_diet.models.diet_bert.hugging_face.heads import QUESTION_ANSWERER
from keras_diet.models.question_answering.preprocessor import QuestionAnswererPreprocessor
from keras_diet.models.question_answering.question_answerer import QuestionAnswerer


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertQuestionAnswererPreprocessor(DietBertPreprocessor, QuestionAnswererPreprocessor):
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
        doc_stride: int or `None`. The distance in tokens between the beginnings of two windows of a
            context. It must be less than the room for the context in a window. Defaults to `None`,
            which means a third of `sequence_length`, at most 128.
        length_buckets: tuple of int or `None`. Shorter lengths to which a batch with labels may be
            padded, if they hold its longest window. `answer` uses them too. Defaults to `None`: all
            batches have `sequence_length`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        x: A tuple `(questions, contexts)` of two strings, or of two batches of strings.
        y: Answers, or `None`. A dictionary with their `"text"` and `"answer_start"`, the character
            of the context where the text starts. The text `""` with the start -1 means that the
            question has no answer. Or a list with such a dictionary for each question, as in
            Hugging Face's SQuAD, where the first of several answers is taken.
        sample_weight: Weights of the examples, or `None`. All windows of an example get its weight.

    Returns:
        A dictionary of `"token_ids"`, `"segment_ids"` and `"padding_mask"` of shape
        `(num_windows, sequence_length)`. With answers, a tuple of the dictionary, a dictionary of
        the positions `"start"` and `"end"` of shape `(num_windows,)` and, if given,
        `sample_weight` of shape `(num_windows,)`. All are NumPy arrays.

    Raises:
        ValueError: For texts that are missing or empty, and for lists of different lengths. For a
            question that fills a window, and for a `doc_stride` that would skip tokens. For an
            answer that is not in its context at its start.
        NotImplementedError: For tensors in a graph of TensorFlow, such as in `tf.data`.

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


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertQuestionAnswerer(QuestionAnswerer, DietBertTask, Task):
    """A DietBert backbone with a head that finds the answer to a question in a context.

    For each token, the head computes two logits from its hidden state `h_t`, as in BERT:

        start_t = u . h_t + b,    end_t = v . h_t + c

    An answer may begin and end at the tokens of the context, and at `[CLS]`, which stands for no
    answer. All other positions have the logit -1e9, so that they cannot win. These are the
    question, `[SEP]` and padding.

    With a `preprocessor`, `fit`, `evaluate` and `predict` take tuples `(questions, contexts)` of
    strings, and answers as a dictionary of `"text"` and `"answer_start"`. A context that is longer
    than the model becomes several windows, so an example may become several rows. `fit` and
    `evaluate` make the windows of lists and arrays once, before the first step. `batch_size` counts
    windows, and windows are shuffled. `validation_split` separates examples, before they become
    windows. A weight of an example holds for all of its windows. `answer(questions, contexts)`
    returns the answers as texts.

    The default loss is the mean of the cross-entropies of the start and the end. The default
    metrics are the accuracies of both.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`.
        preprocessor: A `keras_diet.models.DietBertQuestionAnswererPreprocessor`, or `None` for
            inputs that are already preprocessed. Labels are then a dictionary of the positions
            `"start"` and `"end"`. Defaults to `None`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.

    Call arguments:
        inputs: The backbone's dictionary. Segment 1 holds the context and its `[SEP]`. If all
            segments are 0, as for RoBERTa, answers may also begin and end in the question.

    Returns:
        A dictionary of the logits `"start"` and `"end"` in float32, each of shape `(B, T)`.

    Raises:
        ValueError: If the preprocessor has more tokens than the backbone.
            `fit`, `evaluate` and `predict` raise it as the preprocessor does, and for positions
            that are not integers in `[0, max_sequence_length)`.
        TypeError: If an argument is unknown.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es", "?"]
    question_answerer = keras_diet.models.DietBertQuestionAnswerer(
        keras_diet.models.DietBertBackbone(
            vocabulary_size=len(vocabulary), num_layers=2, num_heads=2, hidden_dim=8,
            intermediate_dim=16, max_sequence_length=8,
        ),
        keras_diet.models.DietBertQuestionAnswererPreprocessor(
            keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8, doc_stride=2
        ),
    )
    questions, contexts = ["fox ?", "quick ?"], ["the quick the foxes", "the fox"]
    answers = {"text": ["the foxes", ""], "answer_start": [10, -1]}
    question_answerer.fit((questions, contexts), answers, batch_size=2, verbose=0)
    best = question_answerer.answer("fox ?", "the quick the foxes")
    best["text"], best["score"], best["start"], best["end"]
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
     - [Rajpurkar et al., 2016](https://arxiv.org/abs/1606.05250)
    """

    preprocessor_cls = DietBertQuestionAnswererPreprocessor
    trained_head = QUESTION_ANSWERER
