"""What the tasks of DietBert have in common, and their preprocessors."""

from typing import Any

import keras

from keras_diet.models.diet_bert.cached_positions import rebuild_with_cached_positions
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_tokenizer import DietBertTokenizer
from keras_diet.models.hub.packing import template_of
from keras_diet.models.hub.preprocessor import HubPreprocessor
from keras_diet.models.hub.task import HubTask


class DietBertPreprocessor(HubPreprocessor):
    """A preprocessor of DietBert models."""

    backbone_cls = DietBertBackbone
    tokenizer_cls = DietBertTokenizer
    # `[CLS]`, a token and `[SEP]`.
    shortest_sequence = 3

    def build(self, input_shape: Any) -> None:
        """Give the template of the tokenizer to KerasHub's packer, which packs in a graph."""
        super().build(input_shape)
        if hasattr(self, "packer"):
            template, packer = template_of(self.tokenizer), self.packer
            packer.start_value, packer.end_value = template.start, template.end
            packer.sep_value = template.separator

    def call(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Return what KerasHub's preprocessor returns in a graph, with masks and segments as here.

        KerasHub makes no padding mask for embedders, and always numbers the segments.
        """
        outputs = super().call(x, y=y, sample_weight=sample_weight)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(outputs)
        x = {"padding_mask": x["token_ids"] != self.tokenizer.pad_token_id, **x}
        x["segment_ids"] *= int(template_of(self.tokenizer).numbers_segments)
        return keras.utils.pack_x_y_sample_weight(x, y, sample_weight)


class DietBertTask(HubTask):
    """A task with a `DietBertBackbone`."""

    backbone_cls = DietBertBackbone
    # `keras_diet.layers.cache_positions` calls it.
    with_cached_positions = rebuild_with_cached_positions
