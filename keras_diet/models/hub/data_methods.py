"""How a model gets from the data of a user to batches of token ids."""

import functools
import sys
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_diet.data.columns import arrays, as_rows, is_columns, map_columns, split, take
from keras_diet.data.epoch_dataset import EpochDataset
from keras_diet.data.for_keras import for_keras, without_preprocessor
from keras_diet.data.sources import packed, source_of
from keras_diet.models.hub.inference import InferenceMethods
from keras_diet.models.hub.labels import (
    Classes,
    checked_class_weight,
    checked_labels,
    checked_weights,
    of_output,
    warn_if_loss_does_not_fit,
)
from keras_diet.models.hub.model_inputs import TokenInput, check_token_inputs, without_documents
from keras_diet.models.hub.preprocessor import (
    ForeignPreprocessor,
    HostPreprocessor,
    HubPreprocessor,
    check_preprocessor_fits,
)
from keras_diet.models.hub.repairs import sum_repeated_rows
from keras_diet.training.trainers import (
    beside_training,
    divided,
    return_weights,
    whole_batches,
)
from keras_diet.types import Columns, Config


class DataMethods(InferenceMethods):
    """The methods of backbones and tasks that take data.

    With a preprocessor, `batches` makes batches on the host, and Keras reads these. Without a
    preprocessor, arrays of token ids are checked once and go to Keras, and datasets of token ids go
    to Keras as they are.

    A backbone is like a task without preprocessor and classes.
    """

    # What the model returns: `"logits"`, `"probabilities"`, `"embeddings"`, or `None` if it is not
    # known.
    output_kind: str | None = None

    @property
    def classes(self) -> Classes | dict[str, Classes] | None:
        """The labels that a sparse loss expects, by output if there are several outputs."""
        return None

    @property
    def token_inputs(self) -> dict[str, TokenInput]:
        """What each input holds after preprocessing. Inputs are not checked if this is empty."""
        return {}

    @property
    def host_preprocessor(self) -> HostPreprocessor:
        """The preprocessor with all that this library asks. Others than ours are wrapped."""
        preprocessor = self.preprocessor
        if preprocessor is None:
            return HostPreprocessor()
        is_ours = isinstance(preprocessor, HubPreprocessor)
        return preprocessor if is_ours else ForeignPreprocessor(self)

    # === Columns and batches ===

    def columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> Columns:
        """Return the data of a user as columns for the preprocessor, after checking them.

        Names of classes become numbers here.

        Raises:
            ValueError: If data cannot be right. The message says what to do.
        """
        preprocessor = self.host_preprocessor
        if not preprocessor.converts_labels:
            y, sample_weight = self.checked_targets(y, sample_weight)
        return preprocessor.columns(x, y, sample_weight)

    def columns_of_examples(self, x: Any, y: Any = None, sample_weight: Any = None) -> Columns:
        """Return the data of `fit` or `evaluate` as columns. By default they are as in `predict`.

        The loss may say what an example is.
        """
        return self.columns(x, y, sample_weight)

    @property
    def makes_labels(self) -> bool:
        """Whether the labels come from the texts, so that users pass none."""
        return self.host_preprocessor.makes_labels

    def checked_targets(self, y: Any, sample_weight: Any = None) -> tuple[Any, Any]:
        """Return the labels and weights of all outputs as numbers, after checking them."""
        # One text has one label.
        y, sample_weight = map_columns(as_rows, (y, sample_weight))
        outputs = self.output if isinstance(self.output, Mapping) else {}
        names = list(outputs) or self.output_names
        if isinstance(y, Mapping) and not set(y) <= set(names):
            raise ValueError(f"`y` must have the keys {names}. Received: the keys {list(y)}")
        losses = self.loss if self.compiled else None

        def shape_of(name):
            output = outputs.get(name, self.output)
            return tuple(output.shape) if keras.utils.is_keras_tensor(output) else None

        def labels(y, name=None):
            classes = of_output(self.classes, name)
            return checked_labels(y, classes, of_output(losses, name), shape_of(name))

        if isinstance(y, Mapping):
            y = {name: labels(column, name) for name, column in y.items()}
        else:
            y = map_columns(labels, y)
        shape = shape_of(None)
        return y, map_columns(lambda column: checked_weights(column, shape), sample_weight)

    def batches(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        batch_size: int | None = None,
        shuffle: bool = False,
        training: bool = True,
        steps: int | None = None,
        labels: bool = True,
    ) -> EpochDataset:
        """Return the data of `fit`, `evaluate` or `predict` as batches of arrays.

            batch(epoch, index) = preprocessor.make_batch(rows, generator(epoch, index))

        Everything that is random, which is the order and masks, depends on the seed, the epoch and
        the index of a batch only.

        Args:
            x: Texts or token ids, as in `fit`: columns, or a dataset of batches.
            y: Labels, or `None`.
            sample_weight: Weights, or `None`.
            batch_size: int or `None`. Defaults to `None`, which means 32.
            shuffle: bool. Whether each epoch has a new order. Defaults to `False`.
            training: bool. Whether masks are new in each epoch. Defaults to `True`.
            steps: int or `None`. The number of steps of an epoch, if the dataset does not end an
                epoch. Defaults to `None`.
            labels: bool. Whether the loss is computed, so that labels are read. Defaults to `True`.

        Returns:
            An `EpochDataset`. One that is passed is returned as it is.

        Raises:
            ValueError: If data cannot be right. The message says what to do.
        """
        # The vocabulary of a preset is read after the model is built.
        check_preprocessor_fits(self)
        # `predict` draws nothing from NumPy's generator.
        seed = None if training else 0
        read = functools.partial(self._read, labels)
        if self.preprocessor is None:
            return source_of(
                x, y, sample_weight, batch_size, shuffle, steps, seed, lambda *p: arrays(read(*p))
            )
        source = source_of(x, y, sample_weight, batch_size, shuffle, steps, seed, read)
        return x if source is x else source.map(**self._arguments_of_map(training))

    def _arguments_of_map(self, training):
        """Return how rows of columns become the arrays that the model takes."""

        def make(rows, generator):
            return self.make_batch(keras.utils.unpack_x_y_sample_weight(rows), generator)

        preprocessor = self.host_preprocessor
        return {
            "function": make,
            "same_epochs": not training,
            "varies_length": bool(preprocessor.length_buckets),
            "same_size": not preprocessor.packed,
        }

    def predict_sorted(
        self, x: Any, batch_size: int | None, verbose: Any = 0, callbacks: Any = None
    ) -> Any:
        """Return the outputs for texts, as `predict`, which are tokenized once.

        Texts of about as many tokens share a batch, the longest ones first. Packed batches of texts
        of all lengths have about the same number of sequences, so these texts keep their order.
        """
        check_preprocessor_fits(self)
        preprocessor = self.host_preprocessor
        x = preprocessor.tokenized(self._read(False, x)[0])
        parts = x if isinstance(x, tuple) else (x,)
        sizes = np.sum([list(map(len, part)) for part in parts], axis=0)
        order = np.argsort(0 * sizes if preprocessor.packed else -sizes, kind="stable")
        source = source_of(take(x, order), batch_size=batch_size, seed=0)
        data = source.map(**self._arguments_of_map(training=False))
        found = self.infer(data, None, verbose, None, callbacks)
        return found[np.argsort(order)]

    def _read(self, labels, x, y=None, sample_weight=None):
        """Return what a user passes, after checking it: columns, or arrays of token ids."""
        if self.preprocessor is None:
            read = self.checked_ids
        else:
            read = self.columns_of_examples if labels else self.columns
        columns = read(x, y, sample_weight) if labels else read(x)
        is_needed = labels and self.compiled and self.loss is not None and not self.makes_labels
        # A custom `compute_loss` may need no labels.
        is_needed &= type(self).compute_loss is DataMethods.compute_loss
        if is_needed and columns[1] is None:
            raise ValueError(f"`{type(self).__name__}` needs labels for its loss. Received: y=None")
        return columns

    def make_batch(self, rows: Columns, generator: np.random.Generator) -> tuple[Any, ...]:
        """Return the arrays that the model takes for some rows of `columns`."""
        preprocessor = self.host_preprocessor
        batch = preprocessor.make_batch(rows, generator)
        if self.token_inputs:
            # For example, there may be more texts than segments.
            tokens = without_documents(batch[0]) if preprocessor.packed else batch[0]
            check_token_inputs(tokens, self.token_inputs)
        return packed(*batch)

    def _for_keras(self, x, y=None, sample_weight=None, batch_size=None, **arguments):
        """Return the data as the methods of `keras.Model` take it."""
        if isinstance(x, EpochDataset) or self.preprocessor is not None:
            data = self.batches(x, y, sample_weight, batch_size, **arguments)
            return for_keras(data), None, None
        read = functools.partial(self._read, True)
        return without_preprocessor(x, y, sample_weight, read)

    def checked_ids(self, x: Any, y: Any = None, sample_weight: Any = None) -> Columns:
        """Return arrays of token ids, and their labels and weights as numbers, after checking them.

        Raises:
            ValueError: If data cannot be right. The message says what to do.
        """
        if self.token_inputs:
            check_token_inputs(x, self.token_inputs)
        return x, *self.checked_targets(y, sample_weight)

    def class_weight_of(self, class_weight: Any, y: Any = None) -> dict[int, float] | None:
        """Return the weights of classes by index, after checking them.

        Args:
            class_weight: As in `fit`.
            y: The labels, which `"balanced"` counts, or `None`. Defaults to `None`.

        Raises:
            ValueError: If a key is not a class, or if examples do not have one class each.
        """
        return checked_class_weight(class_weight, self.classes, y)

    def _one_batch(self, x, y=None, sample_weight=None, labels=True):
        """Return one batch after checking it."""
        if self.preprocessor is None:
            return self.checked_ids(x, y, sample_weight)
        data = self.batches(x, y, sample_weight, sys.maxsize, training=labels, labels=labels)
        return keras.utils.unpack_x_y_sample_weight(data.batch(0, 0))

    def _batch_tensors(self, x, y, sample_weight):
        """Return tensors of one batch, for methods of `keras.Model`."""
        return_weights(self._models())
        batch = self._one_batch(x, y, sample_weight)
        return keras.tree.map_structure(keras.ops.convert_to_tensor, batch, none_is_leaf=False)

    # === Steps of Keras's trainers. On JAX there is a state before the data. ===

    def compile(self, optimizer: Any = "auto", loss: Any = "auto", **kwargs: Any) -> None:
        """Configure training, as `keras.Model.compile`, with defaults for the task.

        A loss that takes probabilities where the model returns logits, or the reverse, gives a
        warning.

        Args:
            optimizer: As in `keras.Model.compile`. Defaults to `"auto"`, which means that of
                KerasHub's tasks: Adam with a learning rate of 5e-5, or of 2e-5 for translation.
            loss: As in `keras.Model.compile`. Defaults to `"auto"`, which means what the class
                describes.
            **kwargs: Keyword arguments of `keras.Model.compile`, such as `metrics`. `"auto"`, the
                default, means what the class describes.
        """
        given = {"optimizer": optimizer, "loss": loss, **kwargs}
        given = {
            name: value
            for name, value in given.items()
            if not (isinstance(value, str) and value == "auto")
        }
        super().compile(**self.compile_arguments(given))
        if self.optimizer is not None:
            sum_repeated_rows(self.optimizer)
        self.forget_steps()
        warn_if_loss_does_not_fit(self)

    def compile_arguments(self, given: Config) -> Config:
        """Return the arguments of `compile` with the defaults of the task.

        Args:
            given: The arguments that are not `"auto"`.
        """
        return given

    def forget_steps(self) -> None:
        """Compile and record all steps again, as after a change of layers."""
        self.train_function = self.test_function = self.predict_function = None
        self.generate_function = None
        self.__dict__.pop("_inference_function", None)

    def with_cached_positions(self) -> Any:
        """Raise a `ValueError`. A model that `keras_diet.layers.cache_positions` copies has it."""
        raise ValueError(
            "`cache_positions` copies encoders, such as DietBert models. Received: "
            f"{type(self).__name__}"
        )

    def train_step(self, *arguments: Any) -> Any:
        """Train on a batch."""
        *state, data = arguments
        return super().train_step(*state, divided(data))

    def test_step(self, *arguments: Any) -> Any:
        """Evaluate a batch."""
        *state, data = arguments
        return super().test_step(*state, divided(data))

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Return the loss of a batch, as `keras.Model.compute_loss`."""
        # On PyTorch, Keras's losses with `ignore_class` change the weights that they get.
        sample_weight = keras.tree.map_structure(keras.ops.copy, sample_weight, none_is_leaf=False)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    # === Methods of Keras ===

    @whole_batches()
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
                `keras.utils.PyDataset`, or a PyTorch `DataLoader`. A dataset of texts without a
                length is read once before, to count its batches, unless `steps_per_epoch` is given.
            y: Labels, unless `x` is a dataset or the preprocessor makes them.
            batch_size: int or `None`. Defaults to `None`, which means 32. Datasets have their own.
            sample_weight: Weights of the examples, or `None`.
            validation_data: A tuple `(x, y)` or `(x, y, sample_weight)`, or a dataset.
            validation_split: float. The fraction of the examples, from the end of arrays and lists,
                that is held out for validation. Defaults to `0.0`.
            validation_batch_size: int or `None`. Defaults to `None`, which means `batch_size`.
            shuffle: bool. Whether each epoch has a new order of the examples in arrays and lists,
                or of the batches of a dataset that can be indexed. Defaults to `True`.
            class_weight: Dictionary from classes to the weights of their examples in the loss. A
                class is an integer, or a name of a classifier with `class_names`. Classes that are
                left out have the weight 1. Or an array or a list with the weight of each class. Or
                `"balanced"`, for labels `y`: the number of examples, divided by the number of
                classes among them and by the number of examples of the class. Defaults to `None`.
            **kwargs: Other keyword arguments of `keras.Model.fit`, such as `epochs`.

        Returns:
            A `keras.callbacks.History`. Its `history` has a list of each loss and metric, with a
            number for each epoch.

        Raises:
            ValueError: If data cannot be right. The message says what to do.

        Example:

        ```python
        classifier = keras_diet.models.DietBertTextClassifier.from_preset(
            "diet_bert_tiny_en", class_names=["bad", "good"]
        )
        history = classifier.fit(["a fine film", "a poor story"], ["good", "bad"], epochs=2)
        history.history["loss"]  # two numbers
        ```
        """
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = split((x, y, sample_weight), validation_split)
        if validation_data is not None:
            vx, vy, weights = keras.utils.unpack_x_y_sample_weight(validation_data)
            size = (validation_batch_size or batch_size) if is_columns(vx) else None
            validation_data = self._for_keras(
                vx, vy, weights, size, training=False, steps=kwargs.get("validation_steps")
            )
        steps = kwargs.get("steps_per_epoch")
        data = self._for_keras(x, y, sample_weight, batch_size, shuffle=shuffle, steps=steps)
        return keras.Model.fit(
            self,
            *data[:2],
            batch_size,
            sample_weight=data[2],
            validation_data=validation_data,
            validation_batch_size=validation_batch_size,
            # An `EpochDataset` has its own order.
            shuffle=shuffle and not isinstance(data[0], EpochDataset),
            class_weight=self.class_weight_of(class_weight, y),
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
        """Evaluate the model, as `keras.Model.evaluate`. With a preprocessor, `x` is raw text.

        Args:
            x: As in `fit`.
            y: As in `fit`.
            batch_size: int or `None`. Defaults to `None`, which means 32. Datasets have their own.
            sample_weight: Weights of the examples, or `None`.
            **kwargs: Other keyword arguments of `keras.Model.evaluate`, such as `return_dict`.

        Returns:
            The loss, or a list of the loss and the metrics, or a dictionary of them with
            `return_dict=True`.

        Raises:
            ValueError: If data cannot be right. The message says what to do.

        Example:

        ```python
        classifier = keras_diet.models.DietBertTextClassifier.from_preset(
            "diet_bert_tiny_en", class_names=["bad", "good"]
        )
        loss, accuracy = classifier.evaluate(["a fine film", "a poor story"], ["good", "bad"])
        ```
        """
        # `fit` calls it with data that is prepared already.
        if not kwargs.get("_use_cached_eval_dataset"):
            x, y, sample_weight = self._for_keras(
                x, y, sample_weight, batch_size, training=False, steps=kwargs.get("steps")
            )
        with beside_training(self._models()):
            return keras.Model.evaluate(
                self, x, y, batch_size, sample_weight=sample_weight, **kwargs
            )

    @whole_batches()
    def train_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any
    ) -> Any:
        """Train on one batch, as `keras.Model.train_on_batch`."""
        kwargs["class_weight"] = self.class_weight_of(kwargs.get("class_weight"), y)
        return keras.Model.train_on_batch(self, *self._batch_tensors(x, y, sample_weight), **kwargs)

    @whole_batches()
    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        """Evaluate one batch, as `keras.Model.test_on_batch`."""
        return keras.Model.test_on_batch(self, *self._batch_tensors(x, y, sample_weight), **kwargs)
