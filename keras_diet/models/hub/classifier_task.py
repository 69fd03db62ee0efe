"""What classifiers of texts and of tokens have in common: classes with names, and the head."""

import os
from collections.abc import Callable, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_diet import validation
from keras_diet.layers.initializers import bert_initializer
from keras_diet.models.hub.classes import Classes, listed
from keras_diet.models.hub.task import HubTask
from keras_diet.types import Activation, Config


class ClassifierTask(HubTask):
    """A mixin for a task with the arguments `num_classes`, `class_names`, `activation`, `dropout`.

    A subclass calls `set_classes` and `make_head` in its constructor. Hidden states `h` become

        activation(W Dropout(h) + b)
    """

    num_classes: int
    class_names: list[str] | None
    # Whether an example may have several classes.
    multi_label = False
    # Whether an example has one class, and not one for each token.
    one_class_per_example = True

    def set_classes(
        self,
        num_classes: int | None,
        class_names: Sequence[str] | None,
        activation: Activation,
        dropout: float,
    ) -> None:
        """Set the arguments of the head after checking them."""
        if class_names is not None:
            class_names = _checked_names(class_names)
            if num_classes not in (None, len(class_names)):
                raise ValueError(
                    "`class_names` must hold one name for each class. Received: "
                    f"num_classes={num_classes} and {len(class_names)} names ({listed(class_names)})"
                )
            num_classes = len(class_names)
        self.num_classes = validation.positive_int("num_classes", num_classes)
        self.class_names = class_names
        self.activation = keras.activations.get(activation)
        self.dropout = validation.rate("dropout", dropout)

    def make_head(self, dtype: Any) -> None:
        """Create the layers after the backbone."""
        self.output_dropout = keras.layers.Dropout(
            self.dropout, dtype=dtype, name="classifier_dropout"
        )
        self.output_dense = keras.layers.Dense(
            self.num_classes,
            activation=self.activation,
            kernel_initializer=bert_initializer(),
            dtype=dtype,
            name="logits",
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
    def output_kind(self) -> str | None:
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
            # With names, a number would say that a new head is wanted.
            "num_classes": None if self.class_names else self.num_classes,
            "class_names": list(self.class_names) if self.class_names else None,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Build the model from `get_config`.

        If KerasHub loads a preset with another `num_classes`, the names of its classes are dropped.
        """
        number, names = config.get("num_classes"), config.get("class_names")
        if number is not None and names is not None and number != len(names):
            config = {**config, "class_names": None}
        return super().from_config(config)

    @classmethod
    def from_preset(
        cls, preset: str | os.PathLike[str], load_weights: bool = True, **kwargs: Any
    ) -> Self:
        """Load the classifier from a preset, as `HubTask.from_preset`.

        With `num_classes`, the head is new and has no names of classes, unless `class_names` are
        given too.
        """
        if "num_classes" in kwargs:
            kwargs.setdefault("class_names", None)
        task = super().from_preset(preset, load_weights, **kwargs)
        names = kwargs.get("class_names")
        if names is not None and task.class_names is None:
            raise ValueError(
                f"Received: {len(names)} names for {task.num_classes} classes of the preset. For a "
                f"new head, pass num_classes={len(names)} too."
            )
        return task


def _checked_names(class_names):
    names = [] if isinstance(class_names, str) else list(class_names)
    are_names = all(isinstance(name, str) and name for name in names)
    if len(names) < 2 or not are_names or len(set(names)) < len(names):
        raise ValueError(
            "`class_names` must be a list of at least two different, nonempty strings. Received: "
            f"class_names={class_names!r}"
        )
    return [str(name) for name in names]
