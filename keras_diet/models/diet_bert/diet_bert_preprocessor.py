"""What the preprocessors of DietBert have in common."""

from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_tokenizer import DietBertTokenizer
from keras_diet.models.hub.preprocessor import HubPreprocessor


class DietBertPreprocessor(HubPreprocessor):
    """A preprocessor of DietBert models."""

    backbone_cls = DietBertBackbone
    tokenizer_cls = DietBertTokenizer
    # `[CLS]`, a token and `[SEP]`.
    shortest_sequence = 3
