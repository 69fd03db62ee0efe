"""How a model gets from the data of a user to batches of token ids."""

from typing import TYPE_CHECKING, Any

import keras

from keras_diet import validation
from keras_diet._compat import variables_restored
from keras_diet.models.hub.array_batches import ArrayBatches, split
from keras_diet.models.hub.batches import (
    check_is_dataset,
    check_left_out,
    is_tf_dataset,
    preprocessed,
)
from keras_diet.models.hub.class_weight import checked_class_weight, with_class_weight
from keras_diet.models.hub.fit_arguments import check_fit_arguments
from keras_diet.models.hub.gate import (
    checked_data,
    checked_element,
    checked_labels,
    checked_weights,
)
from keras_diet.models.hub.labels import Classes
from keras_diet.models.hub.preprocessor import HubPreprocessor, check_preprocessor_fits
from keras_diet.models.hub.texts import as_batch, holds_text, is_batch

if TYPE_CHECKING:
    from keras_hub.models import Task
else:
    # When Keras makes a class functional, two paths to `Task` are an inheritance cycle.
    Task = object


class DataMethods(Task):
    """The methods of backbones and tasks that take data.

    KerasHub's methods take lists, arrays, `tf.data` and Grain. These methods also take everything
    else that `keras.Model.fit` takes, shuffle arrays and lists, and check the data.

    A backbone is like a task without preprocessor and classes. A subclass implements `check_inputs`
    and `preprocess_samples`. A task that makes several sequences of an example also implements
    `expand_samples`.
    """

    @property
    def classes(self) -> Classes | dict[str, Classes] | None:
        """The labels that a sparse loss expects, by output if there are several outputs."""
        return None

    def check_inputs(self, x: Any) -> None:
        """Raise a `ValueError` if `x` cannot be a batch of inputs."""
        raise NotImplementedError

    def checked_targets(self, x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
        """Return labels and weights after checking them. Names of classes become numbers."""
        return checked_labels(self, x, y), checked_weights(self, sample_weight)

    def expand_samples(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Return what batches are made of, for examples that were checked before.

        By default, these are the examples. `fit` expands arrays and lists once, before it shuffles
        them, and datasets batch by batch.
        """
        return x, y, sample_weight

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        *,
        sample_weight: Any = None,
        validation_data: Any = None,
        validation_split: float = 0.0,
        validation_batch_size: int | None = None,
        shuffle: bool = True,
        class_weight: Any = None,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Train the model, as `keras.Model.fit`. With a preprocessor, `x` is raw text.

        Args:
            x: Inputs, as an array, a list, or a tuple or dictionary of them. Or a dataset or
                generator of batches `(x, y)` or `(x, y, sample_weight)`: `tf.data`, Grain,
                `keras.utils.PyDataset`, or a PyTorch `DataLoader`.
            y: Labels, unless `x` is a dataset or the preprocessor makes them.
            batch_size: int or `None`. Defaults to `None`, which means 32. Datasets have their own.
            sample_weight: Weights of the examples, or `None`.
            validation_data: A tuple `(x, y)` or `(x, y, sample_weight)`, or a dataset.
            validation_split: float. The fraction of the examples, from the end of arrays and lists,
                that is held out for validation. Defaults to `0.0`.
            validation_batch_size: int or `None`. Defaults to `None`, which means `batch_size`.
            shuffle: bool. Whether each epoch has a new order of the examples in arrays and lists,
                or of the batches of a `PyDataset`. Defaults to `True`.
            class_weight: Dictionary from classes to the weights of their examples in the loss, or
                `None`. A class is an integer, or a name of a classifier with `class_names`.
                Defaults to `None`. Classes that are left out have the weight 1.
            **kwargs: Other keyword arguments of `keras.Model.fit`, such as `epochs`.

        Raises:
            ValueError: If data cannot be right. The message says what to do.
        """
        check_fit_arguments(self, shuffle, kwargs)
        validation.optional_positive_int("validation_batch_size", validation_batch_size)
        class_weight = checked_class_weight(class_weight, self.classes)
        data = self._checked(x, y, sample_weight, batch_size)
        if validation_split and validation_data is None:
            if not isinstance(data, tuple):
                raise ValueError(
                    "`validation_split` needs arrays or lists. Received: "
                    f"x={type(x).__name__}. Pass `validation_data`."
                )
            data, validation_data = split(data, validation_split)
        elif validation_data is not None:
            validation_data = self._checked_validation(validation_data, validation_batch_size)
        if validation_data is not None:
            size = validation_batch_size or batch_size
            validation_data = self._batches(validation_data, size)
        return keras.Model.fit(
            self,
            self._batches(data, batch_size, shuffle, class_weight=class_weight),
            validation_data=validation_data,
            shuffle=shuffle and isinstance(x, keras.utils.PyDataset),
            class_weight=class_weight if is_tf_dataset(data) else None,
            **kwargs,
        )

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        *,
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Evaluate the model, as `keras.Model.evaluate`. With a preprocessor, `x` is raw text."""
        if kwargs.get("_use_cached_eval_dataset"):
            # `fit` calls it with batches that are preprocessed already.
            return keras.Model.evaluate(self, x, y, batch_size, **kwargs)
        data = self._checked(x, y, sample_weight, batch_size)
        if not self.compiled:
            raise ValueError(
                "`evaluate` needs a compiled model. Received: compile=False. Call `compile` with a "
                "loss first."
            )
        with variables_restored(self):
            return keras.Model.evaluate(self, self._batches(data, batch_size), **kwargs)

    def predict(self, x: Any = None, batch_size: int | None = None, **kwargs: Any) -> Any:
        """Return the outputs, as `keras.Model.predict`. With a preprocessor, `x` is raw text.

        One text is a batch of one.
        """
        x = self._as_batch(x)
        data = self._checked(x, None, None, batch_size, needs_labels=False)
        batches = self._batches(data, batch_size, needs_labels=False)
        with variables_restored(self):
            return keras.Model.predict(self, batches, **kwargs)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Train on one batch, as `keras.Model.train_on_batch`."""
        class_weight = checked_class_weight(class_weight, self.classes)
        x, y, sample_weight = self._tensors(*checked_data(self, x, y, sample_weight))
        return keras.Model.train_on_batch(self, x, y, sample_weight, class_weight, **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        """Evaluate one batch, as `keras.Model.test_on_batch`."""
        x, y, sample_weight = self._tensors(*checked_data(self, x, y, sample_weight))
        return keras.Model.test_on_batch(self, x, y, sample_weight, **kwargs)

    def predict_on_batch(self, x: Any, **kwargs: Any) -> Any:
        """Return the outputs of one batch, as `keras.Model.predict_on_batch`."""
        x, _, _ = self._tensors(*checked_data(self, self._as_batch(x), needs_labels=False))
        return keras.Model.predict_on_batch(self, x, **kwargs)

    def _tensors(self, *data):
        """Return the inputs, labels and weights of one batch as tensors.

        The methods of KerasHub take labels of one output only.
        """
        batch = self.preprocess_samples(*self.expand_samples(*data))
        batch = keras.utils.unpack_x_y_sample_weight(batch)
        return keras.tree.map_structure(keras.ops.convert_to_tensor, batch, none_is_leaf=False)

    # === Checks ===

    def _as_batch(self, x):
        return as_batch(x) if isinstance(self.preprocessor, HubPreprocessor) else x

    def _checked(self, x, y, sample_weight, batch_size, needs_labels=True):
        """Return a tuple of checked arrays, or a dataset, whose batches are checked later."""
        if self.preprocessor is not None:
            # The vocabulary of a preset is read after the model is built.
            check_preprocessor_fits(self.preprocessor, self.backbone)
        _check_batch_size(batch_size)
        if is_batch(x):
            return checked_data(self, x, y, sample_weight, needs_labels)
        check_is_dataset("x", x)
        check_left_out(x, y=y, sample_weight=sample_weight, batch_size=batch_size)
        return x

    def _checked_validation(self, data, batch_size):
        """Return the result of `_checked` for the `validation_data` of `fit`."""
        is_texts = isinstance(data, list) and holds_text(data)
        if isinstance(data, (tuple, list)) and len(data) in (1, 2, 3) and not is_texts:
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(tuple(data))
            return self._checked(x, y, sample_weight, batch_size)
        if is_batch(data):
            raise ValueError(
                "`validation_data` must be a tuple (x, y) or (x, y, sample_weight), or a dataset. "
                f"Received: {type(data).__name__}. Put inputs and labels into a tuple, and inputs "
                "without labels into `(x,)`."
            )
        check_is_dataset("validation_data", data)
        check_left_out(data, validation_batch_size=batch_size)
        return data

    def _batches(self, data, batch_size=None, shuffle=False, needs_labels=True, class_weight=None):
        """Return preprocessed batches of the result of `_checked`."""
        if isinstance(self.preprocessor, HubPreprocessor) and not self.preprocessor.built:
            # Several threads may preprocess the first batches at the same time.
            self.preprocessor.build(None)
        is_checked = isinstance(data, tuple)
        if is_checked:
            data = ArrayBatches(self.expand_samples(*data), batch_size, shuffle)
        # Keras weighs the classes of `tf.data` itself.
        class_weight = None if is_tf_dataset(data) else class_weight

        def preprocess(batch):
            if not is_checked:
                batch = self.expand_samples(*checked_element(self, batch, needs_labels))
            batch = self.preprocess_samples(*batch)
            # Keras takes only tuples from generators.
            batch = batch if isinstance(batch, tuple) else (batch,)
            return batch if class_weight is None else with_class_weight(batch, class_weight)

        varies_length = bool(getattr(self.preprocessor, "length_buckets", None))
        return preprocessed(data, preprocess, shuffle, varies_length)


def _check_batch_size(batch_size):
    if isinstance(batch_size, (list, tuple)) or hasattr(batch_size, "shape"):
        raise ValueError(
            "`batch_size`, the third argument, must be a positive integer. Received: "
            f"{type(batch_size).__name__}. Pass pairs of texts as one tuple (first, second), and "
            "weights as `sample_weight`."
        )
    validation.optional_positive_int("batch_size", batch_size)
