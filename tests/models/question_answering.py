"""Small question answerers, and questions with contexts, for their tests."""

from keras_diet.models import (
    DietBertQuestionAnswerer,
    DietBertQuestionAnswererPreprocessor,
    DietBertTokenizer,
)
from tests.models.tiny import SIZES, VOCABULARY, tiny_backbone

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


def tiny_preprocessor(vocabulary=VOCABULARY, tokenizer=None, **arguments):
    tokenizer = tokenizer or DietBertTokenizer(vocabulary)
    arguments = {"sequence_length": SEQUENCE_LENGTH, "doc_stride": DOC_STRIDE, **arguments}
    return DietBertQuestionAnswererPreprocessor(tokenizer, **arguments)


def tiny_question_answerer(with_preprocessor=True, compile=True, **arguments):
    """A question answerer of one layer; `arguments` are the backbone's."""
    backbone = tiny_backbone(**{"num_layers": 1, **arguments})
    preprocessor = tiny_preprocessor() if with_preprocessor else None
    assert SIZES["max_sequence_length"] != SEQUENCE_LENGTH
    return DietBertQuestionAnswerer(backbone, preprocessor, compile=compile)
