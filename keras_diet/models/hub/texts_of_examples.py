"""Tasks whose examples may have several texts, of which each is a sequence."""

from typing import Any

import numpy as np
from keras import ops

from keras_diet.data.columns import host_column, map_columns
from keras_diet.types import Columns


class TextsOfExamples:
    """A mixin for a task that also takes arrays `(n, k, T)`, for the `k` texts of `n` examples.

    Put it before the mixins of tasks. Outputs `(B, d)` become `(n, k, d)`.
    """

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Return the outputs."""
        model: Any = super()
        if len(inputs["token_ids"].shape) != 3:
            return model.call(inputs, training=training, mask=mask)
        number, num_texts, length = ops.shape(inputs["token_ids"])
        rows = {key: ops.reshape(ids, (-1, length)) for key, ids in inputs.items()}
        outputs = self.call(rows, training)
        return ops.reshape(outputs, (number, num_texts, outputs.shape[-1]))

    def make_batch(self, rows: Columns, generator: np.random.Generator) -> tuple[Any, ...]:
        """Return the arrays that the model takes. An example may have several texts, in a row."""
        model: Any = super()
        x, *targets = rows
        if not (isinstance(x, np.ndarray) and x.ndim > 1):
            return model.make_batch(rows, generator)
        inputs, *others = model.make_batch((self.texts_of_rows(x), *targets), generator)
        if "document_first_tokens" in inputs:
            first_tokens = inputs["document_first_tokens"].reshape(len(x), -1)
            return {**inputs, "document_first_tokens": first_tokens}, *others
        return map_columns(lambda ids: ids.reshape(len(x), -1, ids.shape[-1]), inputs), *others

    def texts_of_rows(self, rows: np.ndarray) -> Any:
        """Return the inputs of the preprocessor for the texts of examples, one after another."""
        return rows.reshape(-1).tolist()


def rows_of_texts(x: Any) -> Any:
    """Return arrays of token ids `(n, k, T)` as `(n * k, T)`, and others as they are."""

    def rows(ids):
        is_flat = getattr(ids, "ndim", 2) != 3
        return ids if is_flat else host_column(ids).reshape(-1, ids.shape[-1])

    return map_columns(rows, x)
