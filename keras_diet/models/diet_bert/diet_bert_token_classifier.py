"""Classification of the words of sentences with a DietBert backbone."""

import keras
from keras_hub.models import Task

from keras_diet.models.diet_bert.diet_bert_task import DietBertPreprocessor, DietBertTask
from keras_diet.models.diet_bert.hugging_face.heads import TOKEN_CLASSIFIER
from keras_diet.models.hub.document_inputs import rows_of_documents
from keras_diet.models.token_classification.preprocessor import TokenClassifierPreprocessor
from keras_diet.models.token_classification.token_classifier import TokenClassifier
from keras_diet.types import Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTokenClassifierPreprocessor(DietBertPreprocessor, TokenClassifierPreprocessor):
    """Tokenize and pack sentences, and give the label of each word to its first token.

    A sentence is a list of words. The input is `[CLS]`, then the tokens of each word, then
    `[SEP]` and padding. As in BERT, the label of a word belongs to its first token. All other
    tokens have the weight 0, so the loss and the metrics ignore them:

        tokens   [CLS]  fox  ##es  sleep  [SEP]  [PAD]
        y          0     3    0      1      0      0
        weights    0     1    0      1      0      0

    A word without tokens, such as a control character, becomes the unknown token. The words of a
    sentence that do not fit into `sequence_length` are cut off, with a warning.

    Args:
        tokenizer: A `keras_diet.models.DietBertTokenizer`.
        sequence_length: int. Length of the packed inputs, in tokens. Defaults to `512`.
        length_buckets: tuple of int or `None`. Shorter lengths to which a batch with labels may be
            padded, if they hold its longest sentence. `tag` uses them too. Defaults to `None`: all
            batches have `sequence_length`.
        packed: bool. Whether the sentences of a batch share sequences. A sentence sees no other
            one, so the outputs are the same. Defaults to `False`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        x: Sentences: a list of lists of words, or a ragged tensor. One sentence, without a batch
            axis, is an element of a dataset that is batched later.
        y: Labels of the words: a list of integers for each sentence. Defaults to `None`.
        sample_weight: A number for each sentence, or a list of numbers for the words of each
            sentence. Defaults to `None`, which means 1 for each word. Used with `y` only.

    Returns:
        A dictionary of `"token_ids"`, `"segment_ids"` and `"padding_mask"` of shape
        `(B, sequence_length)`. With `y`, a tuple `(x, y, sample_weight)` of the dictionary, and
        labels and weights of the same shape. All are NumPy arrays. With `packed`, the dictionary
        has fewer rows, `"document_ids"` that number the sentences from 1 on, and
        `"document_first_tokens"` `(B,)`, the flat indices of `[CLS]`.

    Raises:
        ValueError: For an empty batch or sentence, for a string in the place of a list of words,
            for words that are not nonempty strings, and for another number of labels or weights
            than words. With `packed`, for `length_buckets` and for a single sentence.
        NotImplementedError: For tensors in a graph of TensorFlow, such as in `tf.data`.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
    preprocessor = keras_diet.models.DietBertTokenClassifierPreprocessor(
        keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8
    )
    x, y, sample_weight = preprocessor([["the", "quick", "fox"], ["foxes"]], [[0, 2, 1], [1]])
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 5.3
    """


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTokenClassifier(TokenClassifier, DietBertTask, Task):
    """A DietBert backbone with a head that classifies each word, for example for named entities.

    The head computes logits for each token `i`, as in BERT:

        logits_i = W Dropout(h_i) + b

    where `h_i` is the last hidden state. With a `preprocessor`, `fit`, `evaluate` and `predict`
    take sentences as lists of words, and a list of labels for each sentence. The label of a word
    belongs to its first token. The default loss is the mean over the words of a batch,
    `sum(w * loss) / sum(w)`, and the default metric is the accuracy of these words. Other tokens
    and padding have the weight 0.

    With `class_names`, labels may be names. `tag(sentences)` returns the name and the probability
    for each word.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`.
        num_classes: int or `None`. Number of classes, at least 2. Defaults to `None`, which means
            one class for each of the `class_names`.
        preprocessor: A `keras_diet.models.DietBertTokenClassifierPreprocessor`, or `None` for
            inputs that are already preprocessed. Defaults to `None`.
        activation: A Keras activation of the outputs, such as `"softmax"`. Defaults to `None`,
            which means logits.
        dropout: float. Rate of the dropout before the head. Defaults to `0.1`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.
        class_names: list of strings or `None`. The name of each class, in the order of the outputs.
            Defaults to `None`, which means that labels are numbers.

    Call arguments:
        inputs: The backbone's dictionary, also with `"document_ids"`.

    Returns:
        Logits of shape `(B, T, num_classes)`, after the `activation`.

    Raises:
        ValueError: If there are fewer than two classes, or if `class_names` are not different,
            nonempty strings, one for each class. If the preprocessor has more tokens than the
            backbone. `fit`, `evaluate` and `predict` raise it for a string in
            the place of a list of words, for an empty sentence, and for another number of labels
            than words. They also raise it for labels that are text but none of the names, and under
            a sparse loss for other labels that are not integers in `[0, num_classes)`.
        TypeError: If an argument is unknown.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
    classifier = keras_diet.models.DietBertTokenClassifier(
        keras_diet.models.DietBertBackbone(
            vocabulary_size=len(vocabulary), num_layers=2, num_heads=2, hidden_dim=8,
            intermediate_dim=16, max_sequence_length=8,
        ),
        class_names=["DET", "ADJ", "NOUN"],
        preprocessor=keras_diet.models.DietBertTokenClassifierPreprocessor(
            keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8
        ),
    )
    sentences = [["the", "quick", "fox"], ["foxes"]]
    classifier.fit(sentences, [["DET", "ADJ", "NOUN"], ["NOUN"]], verbose=0)
    classifier.tag([["the", "foxes"]])  # [[{"word": "the", "label": ..., "probability": ...}, ...]]
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 5.3
    """

    preprocessor_cls = DietBertTokenClassifierPreprocessor
    trained_head = TOKEN_CLASSIFIER
    takes_documents = True

    def outputs_of(self, document_first_tokens: Tensor | None = None, **inputs: Tensor) -> Tensor:
        """Return the outputs for all tokens of each sequence, or of each document."""
        outputs = super().outputs_of(**inputs)
        if document_first_tokens is None:
            return outputs
        return rows_of_documents(outputs, inputs["document_ids"], document_first_tokens)
