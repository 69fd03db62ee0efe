"""What all DietBert tasks share: checks of their data, and files of their weights."""

import keras

from keras_diet import _keras_hub
from keras_diet._keras import flatten_layers
from keras_diet.models.diet_bert.batches import check_batch, check_labels_are_no_text
from keras_diet.models.diet_bert.weights_files import complete_file


class DietBertTask:
    """What goes before KerasHub's class of a task: `class X(DietBertTask, TextClassifier)`.

    - Empty batches, pairs that are not equally many and labels that cannot be are refused: arrays
      as a whole when `fit`, `evaluate` or `predict` begin, datasets batch by batch where they are
      preprocessed, on the host. Nothing is checked on the device.
    - A tokenizer that knows more tokens than the backbone is refused.
    - The optimizer is not part of a preset. KerasHub writes its state to `task.weights.h5`, which
      is then several times as large as the model.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._check_vocabulary()

    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        sample_weight=None,
        validation_data=None,
        **kwargs,
    ):
        """Train the model, as `keras.Model.fit`, on raw texts where there is a preprocessor."""
        self._check_data(x, y)
        if isinstance(validation_data, tuple):
            self._check_data(*keras.utils.unpack_x_y_sample_weight(validation_data)[:2])
        return super().fit(x, y, batch_size, sample_weight, validation_data, **kwargs)

    def evaluate(self, x=None, y=None, batch_size=None, sample_weight=None, **kwargs):
        """Evaluate the model, as `keras.Model.evaluate`, on raw texts too."""
        self._check_data(x, y)
        return super().evaluate(x, y, batch_size, sample_weight, **kwargs)

    def predict(self, x=None, batch_size=None, **kwargs):
        """Return the model's outputs, as `keras.Model.predict`, for raw texts too."""
        self._check_data(x)
        return super().predict(x, batch_size, **kwargs)

    def preprocess_samples(self, x, y=None, sample_weight=None):
        """Preprocess one batch, or return it as it is without a preprocessor."""
        # A preset's vocabulary is read after the model is built.
        self._check_vocabulary()
        self._check_data(x, y)
        return super().preprocess_samples(x, y, sample_weight)

    def check_labels(self, y):
        """Raise a `ValueError` if `y` cannot be the labels of this task."""
        check_labels_are_no_text(y)

    def _check_data(self, x, y=None):
        check_batch(x)
        if y is not None:
            self.check_labels(y)

    def _check_vocabulary(self):
        tokenizer = getattr(self.preprocessor, "tokenizer", None)
        if getattr(tokenizer, "vocabulary", None) is None:
            return
        if tokenizer.vocabulary_size() > self.backbone.vocabulary_size:
            raise ValueError(
                "The backbone must have an embedding for every token of the preprocessor. "
                f"Received: backbone.vocabulary_size={self.backbone.vocabulary_size} and a "
                f"tokenizer of {tokenizer.vocabulary_size()} tokens"
            )

    # === Files ===

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """Load the model from a preset, as `keras_hub.models.Task.from_preset`.

        Args:
            preset: A folder, an address (`"hf://..."`, `"kaggle://..."`), or a registered name.
            load_weights: bool. Whether to load the weights. Defaults to `True`.
            **kwargs: Arguments of the constructor to change.

        Raises:
            ValueError: If the preset holds this task but not the weights of its head, which
                KerasHub would replace by random ones.
        """
        task = super().from_preset(preset, load_weights=load_weights, **kwargs)
        task._check_vocabulary()
        if load_weights and "num_classes" not in kwargs and _lacks_head(preset, task):
            raise ValueError(
                f"Preset {preset} has no task.weights.h5, the weights of the head. Copy or save "
                "it again, or give `num_classes` for a new head, or `load_weights=False`."
            )
        return task

    def save_task_weights(self, filepath):
        """Save the weights that are not the backbone's, without the state of the optimizer."""
        if not self.has_task_weights():
            # KerasHub's words.
            return super().save_task_weights(filepath)
        return keras.saving.save_weights(self, filepath, objects_to_skip=self._not_in_the_head())

    def load_task_weights(self, filepath):
        """Load the weights that are not the backbone's; the optimizer is left as it is."""
        with complete_file(filepath):
            keras.saving.load_weights(self, filepath, objects_to_skip=self._not_in_the_head())

    def _not_in_the_head(self):
        optimizer = [] if self.optimizer is None else [self.optimizer]
        return [*flatten_layers(self.backbone), *optimizer]


def _lacks_head(preset, task):
    if not task.has_task_weights() or not _keras_hub.check_file_exists(preset, "task.json"):
        return False
    saved = _keras_hub.load_json(preset, "task.json")["registered_name"]
    is_this_task = saved == keras.saving.get_registered_name(type(task))
    return is_this_task and not _keras_hub.check_file_exists(preset, "task.weights.h5")
