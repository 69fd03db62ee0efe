"""What the preprocessors of DietBert have in common."""

from keras_diet import validation
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_tokenizer import DietBertTokenizer
from keras_diet.models.hub.preprocessor import HubPreprocessor


class DietBertPreprocessor(HubPreprocessor):
    """A preprocessor of DietBert models."""

    backbone_cls = DietBertBackbone
    tokenizer_cls = DietBertTokenizer
    # `[CLS]`, a token and `[SEP]`.
    shortest_sequence = 3

    def check_arguments(self) -> None:
        """Raise a `ValueError` if an argument does not make sequences of tokens."""
        validation.positive_int("sequence_length", self.sequence_length)
        super().check_arguments()
