"""How a model predicts: texts by length, and batches of rows without Keras's readers."""

import functools
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_diet._recording import RecordedFunction
from keras_diet.data.columns import host_column, is_columns, map_columns
from keras_diet.data.epoch_dataset import EpochDataset
from keras_diet.data.for_keras import for_keras
from keras_diet.data.sources import source_of
from keras_diet.models.hub.token_rows import buckets_of
from keras_diet.training.trainers import (
    beside_training,
    divided,
    has_replicas,
    return_weights,
)

if TYPE_CHECKING:
    from keras_hub.models import Task
else:
    # When Keras makes a class functional, two paths to `Task` are an inheritance cycle.
    Task = object


class InferenceMethods(Task):
    """The methods of backbones and tasks that return outputs."""

    predict_function: Any
    generate_function: Any

    def predict_step(self, *arguments: Any) -> Any:
        """Return the outputs of a batch."""
        *state, data = arguments
        return super().predict_step(*state, divided(data))

    def make_predict_function(self, force: bool = False) -> Any:
        """Return the compiled function of `predict`. On PyTorch it runs recorded graphs.

        As in the compiled functions of TensorFlow and JAX, Python values and hooks of PyTorch are
        read once. Compile the model with `run_eagerly=True` if they must count in each call. With
        `jit_compile=True`, PyTorch compiles the function instead.
        """
        super().make_predict_function(force)
        # Another thread may replace it meanwhile.
        function = self.predict_function
        is_recorded = isinstance(function, RecordedFunction)
        if keras.config.backend() == "torch" and not (
            is_recorded or self.run_eagerly or self.jit_compile
        ):
            self.predict_function = RecordedFunction(function)
        return self.predict_function

    @functools.cached_property
    def _inference_function(self):
        """A compiled function from a batch of tensors to the outputs of the model.

        It may run in several threads at a time, and inside of a callback of `fit`. Keras's function
        for JAX takes the weights out of the model while it runs, and they stay in the model here.
        """
        model: Any = self
        if keras.backend.backend() != "jax":

            def predict_function(inputs):
                model.make_predict_function()
                return model.predict_function([(inputs,)])

            return predict_function
        import jax

        def step(values, inputs):
            with keras.StatelessScope(zip(model.variables, values, strict=True)):
                variables = (model.trainable_variables, model.non_trainable_variables)
                state = [[variable.value for variable in group] for group in variables]
                return model.predict_step(state, (inputs,))[0]

        compiled = jax.jit(step)

        def stateless_function(inputs):
            function = step if model.run_eagerly or not model.jit_compile else compiled
            values = [variable.value for variable in model.variables]
            return function(values, inputs)

        return stateless_function

    def _models(self):
        """Return all models that share weights with this one."""
        return getattr(self, "backbone", self).models()

    def infer_batch(self, inputs: Any) -> Any:
        """Return the outputs for a batch of inputs, as tensors."""
        return_weights(self._models())
        convert = keras.ops.convert_to_tensor
        return self._inference_function(keras.tree.map_structure(convert, inputs))

    def infer(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = 0,
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Return the outputs for preprocessed rows, as `keras.Model.predict`.

        Batches of rows need no reader. Keras's readers take longer than a short text, and PyTorch's
        draws from the generator that dropout uses. Keras reads the data for several replicas of a
        strategy of TensorFlow.

        Args:
            x: Arrays of inputs, or an `EpochDataset` of batches of them.
            batch_size: int or `None`. The size of the batches of arrays. Defaults to `None`, which
                means 32.
            verbose: As in `keras.Model.predict`. Defaults to `0`.
            steps: As in `keras.Model.predict`. Defaults to `None`.
            callbacks: As in `keras.Model.predict`. Defaults to `None`.
        """
        if not isinstance(x, EpochDataset):
            x = source_of(map_columns(host_column, x), batch_size=batch_size, seed=0)
        if has_replicas(self):
            return self._infer_by_keras(for_keras(x), verbose, steps, callbacks)
        steps = min(steps or sys.maxsize, x.num_batches)
        if callbacks or verbose:
            callbacks = keras.callbacks.CallbackList(
                callbacks,
                add_progbar=verbose != 0,
                model=self,
                verbose=verbose,
                epochs=1,
                steps=steps,
            )
        else:
            # Keras starts a thread for an empty list, which takes as long as a part of a text.
            callbacks = keras.callbacks.Callback()
        self.stop_predicting = False
        callbacks.on_predict_begin()
        outputs = []
        for step in range(steps):
            callbacks.on_predict_batch_begin(step)
            inputs, _, _ = keras.utils.unpack_x_y_sample_weight(x.batch(0, step))
            outputs.append(self.infer_batch(inputs))
            callbacks.on_predict_batch_end(step, {"outputs": outputs[-1]})
            if self.stop_predicting:
                break
        callbacks.on_predict_end()
        return keras.tree.map_structure(
            lambda *parts: np.concatenate(list(map(keras.ops.convert_to_numpy, parts))), *outputs
        )

    def _infer_by_keras(self, x, verbose, steps, callbacks):
        with beside_training(self._models()):
            return keras.Model.predict(self, x, verbose=verbose, steps=steps, callbacks=callbacks)

    def predict_by_length(self, inputs: Mapping[str, np.ndarray], batch_size: int | None) -> Any:
        """Return the outputs for all tokens. Short sequences share batches, or are packed.

        Args:
            inputs: Arrays of shape `(B, T)`, with a `"padding_mask"`.
            batch_size: As in `keras.Model.predict`.

        Returns:
            Arrays of shape `(B, T, ...)` in float32. Behind the length of a sequence, they are
            zero.
        """
        if self.preprocessor.packed:
            rows = source_of(inputs, batch_size=batch_size, seed=0)
            return self.infer(rows.map(lambda batch, _: (self.preprocessor.pack(batch[0]),)))
        shape = inputs["padding_mask"].shape
        buckets = buckets_of(inputs["padding_mask"], self.preprocessor.lengths)
        outputs: Any = None
        for length in np.unique(buckets):
            rows = buckets == length
            batch = {name: array[rows, :length] for name, array in inputs.items()}
            found = self.infer(batch, batch_size)
            if outputs is None:
                outputs = keras.tree.map_structure(
                    lambda part: np.zeros((*shape, *part.shape[2:]), "float32"), found
                )
            for array, part in zip(*map(keras.tree.flatten, (outputs, found)), strict=True):
                array[rows, :length] = part
        return outputs

    def predict(
        self,
        x: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Return the outputs, as `keras.Model.predict`. With a preprocessor, `x` is raw text.

        One text is a batch of one. Labels in a dataset are not read.

        Args:
            x: As in `fit`.
            batch_size: int or `None`. Defaults to `None`, which means 32. Datasets have their own.
            verbose: `"auto"`, `0`, `1` or `2`, as in `keras.Model.predict`. Defaults to `"auto"`.
            steps: int or `None`. Number of batches of a dataset. Defaults to `None`, which means
                all of them.
            callbacks: Callbacks of Keras, or `None`. Defaults to `None`.

        Returns:
            Array or dictionary of arrays, with a row for each text. A classifier returns logits,
            unless it has an `activation`.

        Raises:
            ValueError: If data cannot be right. The message says what to do.

        Example:

        ```python
        classifier = keras_diet.models.DietBertTextClassifier.from_preset(
            "diet_bert_tiny_en", num_classes=2
        )
        logits = classifier.predict(["a fine film", "a poor story"])  # (2, 2)
        ```
        """
        options = {"batch_size": batch_size, "training": False, "labels": False}
        if is_columns(x):
            return self.infer(self.batches(x, **options), None, verbose, steps, callbacks)
        data, _, _ = self._for_keras(x, **options, steps=steps)
        return self._infer_by_keras(data, verbose, steps, callbacks)

    def predict_on_batch(self, x: Any) -> Any:
        """Return the outputs of one batch, as `keras.Model.predict_on_batch`."""
        outputs = self.infer_batch(self._one_batch(x, labels=False)[0])
        return keras.tree.map_structure(keras.ops.convert_to_numpy, outputs)
