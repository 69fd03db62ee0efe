"""The class of each word of sentences, with its probability."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_diet.models.diet_bert.classify import probability_function
from keras_diet.models.hub.length_buckets import shortened
from keras_diet.models.hub.method_checks import check_finite, checked_preprocessor
from keras_diet.models.hub.pack_words import split_words
from keras_diet.models.hub.sentences import as_rows, check_sentences


def tag(
    classifier: keras.Model, sentences: Any, batch_size: int | None = None
) -> list[list[dict[str, Any]]]:
    """Return the most probable class of each word, with its probability.

    The probability of a class is the softmax of the logits at the first token of the word. A
    sentence with more tokens than `sequence_length` is split into parts of whole words. Each part
    is classified by itself, so every word gets a class, but it only sees the words of its part.

    Args:
        sentences: A list of sentences. A sentence is a list of words.
        batch_size: int or `None`. Number of sentences, or parts, in a batch. Defaults to `None`,
            which means 32.

    Returns:
        For each sentence, a list with a dictionary for each word: `"word"`, `"label"`, which is a
        name of `class_names`, or the index of the class without names, and `"probability"`, a
        float.

    Raises:
        ValueError: If the model has no preprocessor, or an activation that does not return
            probabilities; if outputs are not finite; or if `sentences` is not a list of lists of
            words.

    Example:

    ```python
    for word in classifier.tag([["the", "quick", "fox"]])[0]:
        word["word"], word["label"], word["probability"]
    ```
    """
    preprocessor = checked_preprocessor(classifier, "tag")
    to_probabilities = probability_function("softmax", classifier.activation, "tag")
    sentences = as_rows(sentences)
    check_sentences(sentences, "sentences")
    room = preprocessor.sequence_length - 2
    pieces = preprocessor.word_pieces(sentences)
    parts = [part for words in pieces for part in split_words(words, room)]
    inputs, places = preprocessor.packed_pieces(parts)
    inputs = shortened(inputs, preprocessor.lengths)
    # The method of the task would preprocess the inputs.
    outputs = keras.Model.predict(classifier, inputs, batch_size=batch_size, verbose=0)
    of_words = np.concatenate([row[at] for row, at in zip(outputs, places, strict=True)])
    # Half precision would round probabilities. On PyTorch, `ops.cast` keeps an array in bfloat16.
    of_words = of_words.astype("float32")
    check_finite("tag", "outputs", [of_words])
    probabilities = ops.convert_to_numpy(to_probabilities(of_words))
    labels = classifier.class_names or range(classifier.num_classes)
    remaining = iter(probabilities)
    return [[_best(word, next(remaining), labels) for word in words] for words in sentences]


def _best(word, probabilities, labels):
    best = int(np.argmax(probabilities))
    return {"word": word, "label": labels[best], "probability": float(probabilities[best])}
