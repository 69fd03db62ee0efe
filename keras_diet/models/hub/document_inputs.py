"""Models that take the documents of a sequence, beside the inputs of their graph."""

from collections.abc import Mapping
from typing import Any

from keras import ops

from keras_diet.models.hub.token_inputs import TokenInput


class DocumentInputs:
    """A mixin for a functional model that may also get `"document_ids"`.

    The graph of the model, its files and its exports have the other inputs only. With documents the
    model calls its layers in `outputs_of`.
    """

    # Whether the model has outputs for each document. If not, the ids raise a `ValueError`.
    takes_documents = True

    def outputs_of(self, *args: Any, **inputs: Any) -> Any:
        """Return the outputs for inputs by name, of which `document_ids` may be left out."""
        raise NotImplementedError

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Return the outputs."""
        model: Any = super()
        if not _has_documents(inputs):
            return model.call(inputs, training=training, mask=mask)
        if not self.takes_documents:
            raise ValueError(
                f"`document_ids` would be ignored by a {type(self).__name__}, which has one result "
                "for a sequence. Received: document_ids. Pass each document as a sequence."
            )
        tensors = {name: ops.convert_to_tensor(x, "int32") for name, x in inputs.items()}
        return self.outputs_of(**tensors)

    def compute_output_spec(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the symbolic outputs, whose shapes do not depend on documents."""
        model: Any = super()
        if _has_documents(inputs):
            inputs = {name: x for name, x in inputs.items() if name != "document_ids"}
        return model.compute_output_spec(inputs, *args, **kwargs)

    @property
    def token_inputs(self) -> dict[str, TokenInput]:
        """What each input holds. Documents are an input of models that take them."""
        model: Any = super()
        inputs = dict(model.token_inputs)
        if not self.takes_documents:
            del inputs["document_ids"]
        return inputs


def _has_documents(inputs):
    return isinstance(inputs, Mapping) and "document_ids" in inputs
