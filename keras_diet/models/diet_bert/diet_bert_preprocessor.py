"""What the preprocessors of all DietBert tasks share."""

import inspect
import os

import keras
from keras_hub.models import Preprocessor

from keras_diet import _keras_hub
from keras_diet.models.diet_bert.batches import (
    check_batch,
    check_labels_are_no_text,
    check_texts_are_flat,
    is_pair,
)
from keras_diet.models.diet_bert.damaged_files import complete_preset
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_tokenizer import DietBertTokenizer


class DietBertPreprocessor(Preprocessor):
    """Base class: pairs of texts are pairs, and bad input is refused.

    KerasHub takes the second element of a tuple, `preprocessor((a, b))`, for labels, since
    datasets hold examples and labels in this way. Text is never a label, so here a tuple of
    texts holds the segments of one input.
    """

    backbone_cls = DietBertBackbone
    tokenizer_cls = DietBertTokenizer

    def __call__(self, x, y=None, sample_weight=None):
        is_all = y is None and sample_weight is None
        if is_all and isinstance(x, tuple) and not is_pair(x):
            # An element of a dataset: examples, labels and perhaps weights.
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(x)
        self.check_texts(x)
        check_labels_are_no_text(y)
        return super().__call__(x, y=y, sample_weight=sample_weight)

    def check_texts(self, x):
        """Raise a `ValueError` if `x` cannot be a batch of texts, or of tuples of them."""
        check_batch(x)
        if self.tokenizer.split:
            # Otherwise lists of lists hold the words of texts.
            check_texts_are_flat(x)

    @classmethod
    def from_preset(cls, preset, config_file="preprocessor.json", **kwargs):
        """Load the preprocessor from a preset, as `keras_hub.models.Preprocessor.from_preset`.

        Args:
            preset: A folder, an address (`"hf://..."`, `"kaggle://..."`), or a registered name.
            config_file: str. The file with the configuration. Defaults to `"preprocessor.json"`.
            **kwargs: Arguments of the constructor to change.

        Raises:
            ValueError: If files are missing or damaged.
        """
        preset = os.fspath(preset)
        with complete_preset(preset):
            _check_preprocessor_is_saved(preset, config_file)
            return super().from_preset(preset, config_file=config_file, **kwargs)

    @classmethod
    def _add_missing_kwargs(cls, loader, kwargs):
        """Let a preprocessor that is not in the preset make sequences that the backbone takes."""
        backbone_config = loader.config.get("config", {})
        if "max_sequence_length" in backbone_config:
            default = inspect.signature(cls).parameters["sequence_length"].default
            longest = backbone_config["max_sequence_length"]
            kwargs.setdefault("sequence_length", min(default, longest))
        return super()._add_missing_kwargs(loader, kwargs)


def _check_preprocessor_is_saved(preset, config_file):
    # KerasHub would make one with other settings than those of the task.
    if not _keras_hub.check_file_exists(preset, "task.json"):
        return
    of_task = _keras_hub.load_json(preset, "task.json").get("config", {}).get("preprocessor")
    if of_task is not None and not _keras_hub.check_file_exists(preset, config_file):
        raise ValueError(
            f"Preset {preset} has no {config_file}, but that of a task, in task.json. "
            "Copy or save it again, or load the task and take its `preprocessor`."
        )
