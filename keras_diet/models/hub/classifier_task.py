"""What classifiers of texts and of tokens have in common: classes with names, and the head."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_diet import validation
from keras_diet.layers.configuration import takes_arguments_of
from keras_diet.layers.initializers import bert_initializer
from keras_diet.models.hub.backbone import HubBackbone
from keras_diet.models.hub.labels import Classes
from keras_diet.models.hub.task import HubTask
from keras_diet.types import Activation, Config, Tensor


class ClassifierTask(HubTask):
    """A mixin for a `keras_hub.models.Task` with a head that classifies hidden states.

    Put it before the mixin of a family and KerasHub's class of tasks. An output `h` of the
    backbone becomes

        activation(W Dropout(h) + b)

    Args:
        backbone: A backbone, whose outputs are a dictionary.
        num_classes: int or `None`. Number of classes; `1` for regression. Defaults to `None`, which
            means one class for each of the `class_names`.
        preprocessor: A preprocessor, or `None`. Defaults to `None`.
        activation: A Keras activation of the outputs, such as `"softmax"`. Defaults to `None`,
            which means logits.
        dropout: float. Rate of the dropout before the head. Defaults to `0.1`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.
        class_names: list of strings or `None`. The name of each class, in the order of the outputs.
            Defaults to `None`, which means that labels are numbers.
    """

    # The output of the backbone that the head reads.
    backbone_output = "pooled_output"
    # Whether an example may have several classes.
    multi_label = False
    # Whether an example has one class, and not one for each token.
    one_class_per_example = True

    @takes_arguments_of(HubTask)
    def __init__(
        self,
        backbone: HubBackbone,
        num_classes: int | None = None,
        preprocessor: keras.layers.Layer | None = None,
        activation: Activation = None,
        dropout: float = 0.1,
        *,
        class_names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        # The default loss depends on the number of classes and on the activation.
        if class_names is not None:
            class_names = _checked_names(class_names, num_classes)
            num_classes = len(class_names)
        if num_classes is None:
            raise ValueError(f"`{type(self).__name__}` needs `num_classes` or `class_names`.")
        self.num_classes = validation.positive_int("num_classes", num_classes)
        self.class_names = class_names
        self.activation = keras.activations.get(activation)
        self.dropout = validation.rate("dropout", dropout)
        self.check_head()
        super().__init__(backbone, preprocessor, **kwargs)

    def make_head(self) -> None:
        """Create the layers of the head."""
        dtype, name = self.backbone.dtype_policy, "classifier_dropout"
        self.output_dropout = keras.layers.Dropout(self.dropout, dtype=dtype, name=name)
        self.output_dense = keras.layers.Dense(
            self.num_classes,
            activation=self.activation,
            kernel_initializer=bert_initializer(),
            dtype=dtype,
            name="logits",
        )

    def outputs_of(self, **inputs: Tensor) -> Tensor:
        """Return the outputs for the inputs of the backbone."""
        hidden_states = self.backbone(inputs)[self.backbone_output]
        return self.output_dense(self.output_dropout(hidden_states))

    def check_head(self) -> None:
        """Raise a `ValueError` if the classes and the activation do not fit each other."""
        activations = keras.activations
        is_softmax = self.activation is activations.softmax
        needs_several = self.multi_label or not self.one_class_per_example or is_softmax
        is_independent = self.activation in (activations.linear, activations.sigmoid)
        if (self.num_classes == 1 and needs_several) or (self.multi_label and not is_independent):
            raise ValueError(
                "Several labels, labels of words, and a softmax need `num_classes` of at least 2. "
                "`multi_label` needs activation=None or 'sigmoid'. Received: "
                f"num_classes={self.num_classes}, multi_label={self.multi_label}, "
                f"activation={activations.serialize(self.activation)!r}"
            )

    @property
    def classes(self) -> Classes:
        """The labels that the losses of Keras expect."""
        return Classes(
            "num_classes",
            self.num_classes,
            one_per_example=self.one_class_per_example and not self.multi_label,
            names=None if self.class_names is None else tuple(self.class_names),
            is_multi_label=self.multi_label,
        )

    # === Outputs ===

    @property
    def output_kind(self) -> str | None:  # type: ignore[override]
        """`"logits"` or `"probabilities"`, or `None` if it is not known."""
        if self.activation is keras.activations.linear:
            return "logits"
        known = (keras.activations.softmax, keras.activations.sigmoid)
        return "probabilities" if self.activation in known else None

    def probability_function(self, method: str) -> Callable[[Any], np.ndarray]:
        """Return the function from outputs of `predict` to probabilities.

        Args:
            method: str. The method that needs probabilities, for messages.

        Raises:
            ValueError: If the outputs are neither logits nor probabilities.
        """
        name = "sigmoid" if self.multi_label else "softmax"
        if self.output_kind != "logits" and self.activation is not getattr(keras.activations, name):
            activation = keras.activations.serialize(self.activation)
            raise ValueError(
                f"`{method}` needs activation=None or {name!r}. Received: activation={activation!r}"
            )

        def probabilities(outputs):
            # Half precision would round probabilities. On PyTorch, `ops.cast` keeps an array in
            # bfloat16.
            outputs = outputs.astype("float32")
            if self.output_kind == "logits":
                outputs = getattr(ops, name)(outputs)
            return ops.convert_to_numpy(outputs)

        return probabilities

    def best_classes(self, probabilities: np.ndarray, top_k: int | None) -> list[dict[str, Any]]:
        """Return the names, or the indices, of the most probable classes, and the probabilities."""
        labels = self.class_names or range(self.num_classes)
        return [
            {"label": labels[i], "probability": float(probabilities[i])}
            for i in np.argsort(-probabilities, kind="stable")[:top_k]
        ]

    # === Configuration and files ===

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        return {
            **super().get_config(),
            "num_classes": None if self.class_names else self.num_classes,
            "class_names": list(self.class_names) if self.class_names else None,
            "activation": keras.activations.serialize(self.activation),
        }


def _checked_names(class_names, num_classes):
    names = [] if isinstance(class_names, str) else list(class_names)
    are_names = all(isinstance(name, str) and name for name in names)
    are_different = are_names and len(set(names)) == len(names) >= 2
    if not are_different or num_classes not in (None, len(names)):
        raise ValueError(
            "`class_names` must be at least two different, nonempty strings, one for each class. "
            f"Received: class_names={class_names!r}, num_classes={num_classes}. For a new head of "
            "a preset with names, pass `class_names` too, or `class_names=None`."
        )
    return [str(name) for name in names]
