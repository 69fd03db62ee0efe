"""Small question answerers, and questions with contexts, for their tests."""

import numpy as np

from keras_diet.models import (
    DietBertQuestionAnswerer,
    DietBertQuestionAnswererPreprocessor,
    DietBertTokenizer,
)
from tests.models.tiny import VOCABULARY, tiny_backbone

# 2, 3 and 1 tokens in the questions, and 8, 4 and 12 in the contexts.
QUESTIONS = ["red cat", "sleeping dog", "tree"]
CONTEXTS = [
    "the  slow red cat sleeping on the",
    "dogs and a",
    "foxes jumped over the lazy dog and birds sing",
]
ANSWERS = {"text": ["red cat", "", "the lazy dog"], "answer_start": [10, -1, 18]}
# So there is room for 6, 5 and 7 tokens of the contexts. Their windows begin at 0 and 3, at 0, and
# at 0, 3 and 6.
SEQUENCE_LENGTH, DOC_STRIDE = 11, 3


def tiny_preprocessor(**arguments):
    arguments = {"sequence_length": SEQUENCE_LENGTH, "doc_stride": DOC_STRIDE, **arguments}
    return DietBertQuestionAnswererPreprocessor(DietBertTokenizer(VOCABULARY), **arguments)


def tiny_question_answerer(with_preprocessor=True, compile=True, **arguments):
    """A question answerer of one layer; `arguments` are the backbone's."""
    backbone = tiny_backbone(**{"num_layers": 1, **arguments})
    preprocessor = tiny_preprocessor() if with_preprocessor else None
    return DietBertQuestionAnswerer(backbone, preprocessor, compile=compile)


def all_spans(windows, logits, max_answer_length):
    """The score of each span of characters of each example, and the null scores."""
    scores, null_scores = [{} for _ in windows.offsets], [np.inf for _ in windows.offsets]
    for row, example in enumerate(windows.examples):
        start, end = (logits[name][row].astype("float64") for name in ("start", "end"))
        null_scores[example] = min(null_scores[example], start[0] + end[0])
        positions = np.flatnonzero(windows.inputs["segment_ids"][row])[:-1]
        offsets = windows.offsets[example]
        first = windows.first_tokens[row]
        for i, begin in enumerate(positions):
            for j, last in enumerate(positions[i : i + max_answer_length], i):
                if all(np.ptp(offsets[first + k]) for k in (i, j)):
                    span = (offsets[first + i][0], offsets[first + j][1])
                    score = start[begin] + end[last]
                    scores[example][span] = max(score, scores[example].get(span, -np.inf))
    return scores, null_scores
