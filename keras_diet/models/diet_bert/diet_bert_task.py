"""What all DietBert tasks share: checks of their data, and files of their weights."""

import os

import keras

from keras_diet import _keras_hub
from keras_diet._keras import flatten_layers
from keras_diet.models.diet_bert.batches import (
    check_batch,
    check_labels_are_no_text,
    check_sparse_labels,
    is_pair,
    numeric_labels,
)
from keras_diet.models.diet_bert.damaged_files import complete_file, complete_preset
from keras_diet.models.diet_bert.diet_bert_preprocessor import DietBertPreprocessor
from keras_diet.models.diet_bert.preset_folder import new_preset
from keras_diet.models.diet_bert.quantized_policies import dtype_to_load

_NEW_HEAD = "Copy or save it again, or give `num_classes` for a new head, or `load_weights=False`."


class DietBertTask:
    """What goes before KerasHub's class of a task: `class X(DietBertTask, TextClassifier)`.

    - Empty batches, pairs that are not equally many, more texts than segments and labels that
      cannot be are refused: arrays as a whole when `fit`, `evaluate` or `predict` begin, datasets
      batch by batch where they are preprocessed, on the host. Nothing is checked on the device.
    - A preprocessor that knows more tokens or makes longer sequences than the backbone is refused.
    - The optimizer is not part of a preset. KerasHub writes its state to `task.weights.h5`, which
      is then several times as large as the model.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._check_preprocessor()

    @property
    def classes(self):
        """What the labels of a sparse loss are: the name and the number of classes, or `None`."""
        return None

    def get_config(self):
        """Return the constructor's arguments."""
        config = super().get_config()
        if not self.trainable:
            # `True` would train what is frozen in the backbone.
            config["trainable"] = False
        return config

    def compile_from_config(self, config):
        """Compile the model as a `.keras` file says, so that the optimizer's state can be read."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

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
        y = self._check_data(x, y)
        if isinstance(validation_data, (tuple, list)):
            x_val, y_val, weights = keras.utils.unpack_x_y_sample_weight(validation_data)
            validation_data = (x_val, self._check_data(x_val, y_val), weights)
        return super().fit(x, y, batch_size, sample_weight, validation_data, **kwargs)

    def evaluate(self, x=None, y=None, batch_size=None, sample_weight=None, **kwargs):
        """Evaluate the model, as `keras.Model.evaluate`, on raw texts too."""
        y = self._check_data(x, y)
        return super().evaluate(x, y, batch_size, sample_weight, **kwargs)

    def predict(self, x=None, batch_size=None, **kwargs):
        """Return the model's outputs, as `keras.Model.predict`, for raw texts too."""
        self._check_data(x)
        return super().predict(x, batch_size, **kwargs)

    def preprocess_samples(self, x, y=None, sample_weight=None):
        """Preprocess one batch, or return it as it is without a preprocessor."""
        # A preset's vocabulary is read after the model is built.
        self._check_preprocessor()
        y = self._check_data(x, y)
        return super().preprocess_samples(x, y, sample_weight)

    def check_labels(self, y):
        """Raise a `ValueError` if `y` cannot be the labels of the loss."""
        is_sparse, ignore_class = self._sparse_loss()
        if is_sparse and self.classes is not None:
            check_sparse_labels(y, *self.classes, ignore_class)

    def _sparse_loss(self):
        """Whether the only loss takes classes as integers, and the class that it ignores."""
        losses = keras.tree.flatten(self.loss) if self.compiled else []
        loss = losses[0] if len(losses) == 1 else None
        if isinstance(loss, str):
            loss = keras.losses.get(loss)
        if isinstance(loss, keras.losses.SparseCategoricalCrossentropy):
            return True, loss.ignore_class
        return loss is keras.losses.sparse_categorical_crossentropy, None

    def _check_data(self, x, y=None):
        """Refuse what cannot be; return the labels as numbers."""
        if isinstance(self.preprocessor, DietBertPreprocessor):
            self.preprocessor.check_texts(x)
            self._check_number_of_texts(x)
        else:
            check_batch(x)
        return self._checked_labels(y)

    def _checked_labels(self, y):
        if y is None:
            return None
        if isinstance(y, dict):
            return {name: self._checked_labels(labels) for name, labels in y.items()}
        check_labels_are_no_text(y)
        y = numeric_labels(y)
        self.check_labels(y)
        return y

    def _check_number_of_texts(self, x):
        num_segments = self.backbone.num_segments
        uses_segments = self.backbone.segment_encoding != "none"
        if uses_segments and is_pair(x) and len(x) > num_segments:
            raise ValueError(
                "`x` must be a tuple of at most `backbone.num_segments` texts. "
                f"Received: {len(x)} texts, backbone.num_segments={num_segments}"
            )

    def _check_preprocessor(self):
        length = getattr(self.preprocessor, "sequence_length", None) or 0
        if length > self.backbone.max_sequence_length:
            raise ValueError(
                "The preprocessor must not make longer sequences than the backbone takes. "
                f"Received: preprocessor.sequence_length={length}, "
                f"backbone.max_sequence_length={self.backbone.max_sequence_length}"
            )
        tokenizer = getattr(self.preprocessor, "tokenizer", None)
        if getattr(tokenizer, "vocabulary", None) is None:
            return
        if tokenizer.vocabulary_size() > self.backbone.vocabulary_size:
            raise ValueError(
                "The backbone must have an embedding for every token of the preprocessor. "
                f"Received: backbone.vocabulary_size={self.backbone.vocabulary_size} and a "
                f"tokenizer of {tokenizer.vocabulary_size()} tokens"
            )

    def quantize(self, mode=None, config=None, filters=None, **kwargs):
        """Quantize the backbone, as `keras.Model.quantize`; the head stays as it is.

        A head is small, a preset can be loaded with a new one, and KerasHub's files do not say
        that a head is quantized.

        Args:
            mode: `"int8"`, `"int4"`, `"float8"`, ..., or `None` with `config`.
            config: A `keras.quantizers.QuantizationConfig`, or `None` for that of the mode.
            filters: As in `keras.Model.quantize`: which layers of the backbone are quantized.
                Defaults to `None`, all that can be.
            **kwargs: Keyword arguments of `keras.Model.quantize`.

        Raises:
            ValueError: If there is no such mode, or the model is quantized already.
        """
        self.backbone.quantize(mode, config=config, filters=filters, **kwargs)
        # PyTorch lists the weights of a model when it is built.
        self.build(self.input_shape)

    # === Files ===

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """Load the model from a preset, as `keras_hub.models.Task.from_preset`.

        Args:
            preset: A folder, an address (`"hf://..."`, `"kaggle://..."`), or a registered name.
            load_weights: bool. Whether to load the weights. Defaults to `True`.
            **kwargs: Arguments of the constructor to change, and `dtype`, by default the one that
                was saved if it is mixed or quantized, else Keras's global policy.

        Raises:
            ValueError: If files are missing or damaged, those of the head among them, which
                KerasHub would replace by a random one, or if a quantized model is asked for in
                another `dtype`.
        """
        takes_head = load_weights and "num_classes" not in kwargs
        preset = os.fspath(preset)
        with complete_preset(preset):
            if takes_head:
                _check_task_is_saved(preset)
            if "backbone" not in kwargs:
                kwargs["dtype"] = dtype_to_load(preset, kwargs.get("dtype"))
            task = super().from_preset(preset, load_weights=load_weights, **kwargs)
        task._check_preprocessor()
        if takes_head and _lacks_head(preset, task):
            raise ValueError(
                f"Preset {preset} has no task.weights.h5, the weights of the head. {_NEW_HEAD}"
            )
        return task

    def save_to_preset(self, preset_dir, max_shard_size=10):
        """Save the task as a preset, as `keras_hub.models.Task.save_to_preset`.

        Args:
            preset_dir: The folder. A preset in it is replaced.
            max_shard_size: Largest size of a file of weights in GB. Defaults to `10`.
        """
        with new_preset(preset_dir) as folder:
            super().save_to_preset(folder, max_shard_size=max_shard_size)

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


def _check_task_is_saved(preset):
    has_weights = _keras_hub.check_file_exists(preset, "task.weights.h5")
    if has_weights and not _keras_hub.check_file_exists(preset, "task.json"):
        raise ValueError(
            f"Preset {preset} has no task.json, which says what its head is. {_NEW_HEAD}"
        )


def _lacks_head(preset, task):
    if not task.has_task_weights() or not _keras_hub.check_file_exists(preset, "task.json"):
        return False
    saved = _keras_hub.load_json(preset, "task.json")["registered_name"]
    is_this_task = saved == keras.saving.get_registered_name(type(task))
    return is_this_task and not _keras_hub.check_file_exists(preset, "task.weights.h5")
