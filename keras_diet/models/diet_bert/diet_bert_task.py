"""What the tasks of DietBert have in common, and their preprocessors."""

from keras_diet.models.diet_bert.cached_positions import rebuild_with_cached_positions
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_tokenizer import DietBertTokenizer
from keras_diet.models.hub.preprocessor import HubPreprocessor
from keras_diet.models.hub.task import HubTask


class DietBertPreprocessor(HubPreprocessor):
    """A preprocessor of DietBert models."""

    backbone_cls = DietBertBackbone
    tokenizer_cls = DietBertTokenizer
    # `[CLS]`, a token and `[SEP]`.
    shortest_sequence = 3


class DietBertTask(HubTask):
    """A task with a `DietBertBackbone`."""

    backbone_cls = DietBertBackbone
    # `keras_diet.layers.cache_positions` calls it.
    with_cached_positions = rebuild_with_cached_positions
