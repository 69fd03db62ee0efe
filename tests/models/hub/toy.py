"""A model family unlike BERT: two token inputs, two outputs, and a task with two outputs."""

import keras
import keras_hub
from keras import ops

from keras_diet.models.hub.backbone import HubBackbone
from keras_diet.models.hub.labels import Classes
from keras_diet.models.hub.task import HubTask

PACKAGE = "keras_diet_tests"


@keras.saving.register_keras_serializable(package=PACKAGE)
class ToyBackbone(HubBackbone):
    """Embeddings of an encoder's and a decoder's tokens, and one projection of both."""

    vocabulary_size, hidden_dim, max_sequence_length = 31, 6, 7

    def __init__(self, dtype=None, **kwargs):
        self.token_embedding = keras.layers.ReversibleEmbedding(
            self.vocabulary_size, self.hidden_dim, dtype=dtype, name="token_embedding"
        )
        self.query = keras.layers.Dense(self.hidden_dim, dtype=dtype, name="query")
        names = ("encoder_token_ids", "decoder_token_ids")
        inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in names}
        encoded, decoded = (self.query(self.token_embedding(inputs[name])) for name in names)
        outputs = {"encoder_sequence_output": encoded, "decoder_sequence_output": decoded}
        super().__init__(inputs=inputs, outputs=outputs, dtype=dtype, **kwargs)


@keras.saving.register_keras_serializable(package=PACKAGE)
class ToyTask(HubTask, keras_hub.models.Task):
    """Two outputs with different classes: three for the encoder, two for the decoder."""

    backbone_cls = ToyBackbone

    def make_head(self):
        dtype = self.backbone.dtype_policy
        self.first = keras.layers.Dense(3, name="first", dtype=dtype)
        self.second = keras.layers.Dense(2, name="second", dtype=dtype)

    def outputs_of(self, **inputs):
        outputs = self.backbone(inputs)
        return {
            "first": self.first(ops.mean(outputs["encoder_sequence_output"], axis=1)),
            "second": self.second(ops.mean(outputs["decoder_sequence_output"], axis=1)),
        }

    @property
    def classes(self):
        return {
            "first": Classes("num_topics", 3, one_per_example=True),
            "second": Classes("num_orders", 2, one_per_example=True),
        }

    def compile(self, optimizer="sgd", loss=None, **kwargs):
        sparse = keras.losses.SparseCategoricalCrossentropy
        if loss is None:
            loss = {"first": sparse(from_logits=True), "second": sparse(from_logits=True)}
        super().compile(optimizer=optimizer, loss=loss, **kwargs)


def toy_inputs(rng, batch_size=5):
    return {
        "encoder_token_ids": rng.integers(0, 31, (batch_size, 7)).astype("int32"),
        "decoder_token_ids": rng.integers(0, 31, (batch_size, 3)).astype("int32"),
    }


def toy_labels(rng, batch_size=5):
    return {"first": rng.integers(0, 3, batch_size), "second": rng.integers(0, 2, batch_size)}
