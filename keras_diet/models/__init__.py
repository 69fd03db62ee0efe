"""Models: a BERT family and an encoder-decoder with DIET's encodings, built on KerasHub."""

from keras_diet import _extras  # noqa: F401  Says what is missing.
from keras_diet.models.diet_bert.adaptation import add_segments, extend_positions
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_masked_lm import (
    DietBertMaskedLM,
    DietBertMaskedLMPreprocessor,
)
from keras_diet.models.diet_bert.diet_bert_presets import (
    register_packaged_presets,
    register_preset,
)
from keras_diet.models.diet_bert.diet_bert_question_answerer import (
    DietBertQuestionAnswerer,
    DietBertQuestionAnswererPreprocessor,
)
from keras_diet.models.diet_bert.diet_bert_sentence_piece_tokenizer import (
    DietBertSentencePieceTokenizer,
)
from keras_diet.models.diet_bert.diet_bert_text_classifier import (
    DietBertTextClassifier,
    DietBertTextClassifierPreprocessor,
)
from keras_diet.models.diet_bert.diet_bert_text_embedder import (
    DietBertTextEmbedder,
    DietBertTextEmbedderPreprocessor,
)
from keras_diet.models.diet_bert.diet_bert_text_reranker import DietBertTextReranker
from keras_diet.models.diet_bert.diet_bert_token_classifier import (
    DietBertTokenClassifier,
    DietBertTokenClassifierPreprocessor,
)
from keras_diet.models.diet_bert.diet_bert_tokenizer import DietBertTokenizer
from keras_diet.models.diet_bert.hugging_face_tokenizer import HuggingFaceTokenizer
from keras_diet.models.diet_transformer.diet_transformer_backbone import DietTransformerBackbone
from keras_diet.models.diet_transformer.diet_transformer_seq_2_seq_lm import (
    DietTransformerSeq2SeqLM,
)
from keras_diet.models.diet_transformer.diet_transformer_seq_2_seq_lm_preprocessor import (
    DietTransformerSeq2SeqLMPreprocessor,
)
from keras_diet.models.diet_transformer.diet_transformer_tokenizer import DietTransformerTokenizer

__all__ = [
    "DietBertBackbone",
    "DietBertMaskedLM",
    "DietBertMaskedLMPreprocessor",
    "DietBertQuestionAnswerer",
    "DietBertQuestionAnswererPreprocessor",
    "DietBertSentencePieceTokenizer",
    "DietBertTextClassifier",
    "DietBertTextClassifierPreprocessor",
    "DietBertTextEmbedder",
    "DietBertTextEmbedderPreprocessor",
    "DietBertTextReranker",
    "DietBertTokenClassifier",
    "DietBertTokenClassifierPreprocessor",
    "DietBertTokenizer",
    "DietTransformerBackbone",
    "DietTransformerSeq2SeqLM",
    "DietTransformerSeq2SeqLMPreprocessor",
    "DietTransformerTokenizer",
    "HuggingFaceTokenizer",
    "add_segments",
    "extend_positions",
    "register_preset",
]

register_packaged_presets()
