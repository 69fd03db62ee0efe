"""TEMPORARY."""

from keras_hub.models import Seq2SeqLMPreprocessor


class DietTransformerSeq2SeqLMPreprocessor(Seq2SeqLMPreprocessor):
    """TEMPORARY."""
