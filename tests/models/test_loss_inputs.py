"""`compile` warns if a loss takes probabilities where the task returns logits, or the reverse."""

import warnings

import keras
import pytest

from keras_diet.models import DietBertTextClassifier
from tests.models.tasks import tiny_task
from tests.models.tiny import tiny_backbone

pytestmark = pytest.mark.any_backend
losses = keras.losses
SPARSE = losses.SparseCategoricalCrossentropy


def compiled(kind, loss, **arguments):
    """Compile a task; return the warnings, which all point to this file."""
    if kind == "classifier":
        arguments = {"num_classes": 3, **arguments}
        task = DietBertTextClassifier(tiny_backbone(num_layers=1), compile=False, **arguments)
    else:
        task = tiny_task(kind, with_preprocessor=False, compile=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        task.compile(loss=loss, metrics=["sparse_categorical_accuracy", "binary_accuracy"])
    assert {warning.filename for warning in caught} <= {__file__}
    return [str(warning.message) for warning in caught]


LOGITS = "takes logits here, but `DietBertTextClassifier` returns probabilities"
PROBABILITIES = "takes probabilities here, but `DietBertTextClassifier` returns logits"
OTHER = [
    ("sparse_categorical_crossentropy", None, "SparseCategoricalCrossentropy", "softmax"),
    ("SparseCategoricalCrossentropy", None, "SparseCategoricalCrossentropy", "softmax"),
    (SPARSE(), None, "SparseCategoricalCrossentropy", "softmax"),
    ([SPARSE()], None, "SparseCategoricalCrossentropy", "softmax"),
    ({"logits": SPARSE()}, None, "SparseCategoricalCrossentropy", "softmax"),
    (losses.categorical_crossentropy, None, "CategoricalCrossentropy", "softmax"),
    (losses.CategoricalFocalCrossentropy(), None, "CategoricalFocalCrossentropy", "softmax"),
    ("binary_crossentropy", None, "BinaryCrossentropy", "sigmoid"),
    (losses.BinaryFocalCrossentropy(), None, "BinaryFocalCrossentropy", "sigmoid"),
    (SPARSE(from_logits=True), "softmax", "SparseCategoricalCrossentropy", None),
    (losses.BinaryCrossentropy(from_logits=True), "sigmoid", "BinaryCrossentropy", None),
]


@pytest.mark.parametrize(("loss", "activation", "name", "remedy"), OTHER)
def test_classifiers(loss, activation, name, remedy):
    (message,) = compiled("classifier", loss, activation=activation)
    assert message == (
        f"`{name}` {PROBABILITIES if activation is None else LOGITS}. Compile with "
        f"`keras.losses.{name}(from_logits={activation is None})`, or build the model with "
        f"activation={remedy!r}."
    )


def test_a_loss_without_logits():
    (message,) = compiled("classifier", "kl_divergence")
    assert message.endswith("returns logits. Build the model with activation='softmax'.")


def test_other_tasks():
    (message,) = compiled("masked_lm", "sparse_categorical_crossentropy")
    assert "`DietBertMaskedLM` returns logits. Compile with `keras.losses.Sparse" in message
    assert message.endswith("(from_logits=True)`.")
    (message,) = compiled("embedder", "binary_crossentropy")
    assert "`DietBertTextEmbedder` returns embeddings. Use a loss for vectors" in message


def own_loss(y, outputs):
    return outputs[:, 0]


FITTING = [
    ("classifier", "auto", {}),
    ("classifier", "auto", {"activation": "softmax"}),
    ("classifier", "auto", {"activation": "sigmoid"}),
    ("classifier", "auto", {"activation": "sigmoid", "multi_label": True}),
    ("classifier", "auto", {"num_classes": 1}),
    ("classifier", None, {}),
    ("classifier", own_loss, {}),
    ("classifier", "mse", {}),
    ("classifier", SPARSE(from_logits=True), {}),
    ("classifier", [SPARSE(from_logits=True)], {}),
    ("classifier", SPARSE(), {"activation": "softmax"}),
    ("classifier", SPARSE(), {"activation": "relu"}),
    ("classifier", "binary_crossentropy", {"activation": "sigmoid", "num_classes": 1}),
    ("classifier", "kl_divergence", {"activation": "softmax"}),
    ("masked_lm", "auto", {}),
    ("masked_lm", SPARSE(from_logits=True), {}),
    ("embedder", "cosine_similarity", {}),
    ("embedder", losses.BinaryCrossentropy(from_logits=True), {}),
]


@pytest.mark.parametrize(("kind", "loss", "arguments"), FITTING)
def test_losses_that_fit(kind, loss, arguments):
    assert compiled(kind, loss, **arguments) == []


def test_files_warn_once(tmp_path):
    task = tiny_task("classifier")
    with pytest.warns(UserWarning, match="takes probabilities"):
        task.compile(loss="sparse_categorical_crossentropy")
    task.save(tmp_path / "model.keras")
    with pytest.warns(UserWarning, match="takes probabilities") as caught:
        keras.saving.load_model(tmp_path / "model.keras")
    assert len(caught) == 1
