"""`from_bert` with a model of `transformers` in memory."""

import keras
import numpy as np
import pytest

from keras_diet.models import DietBertBackbone, DietBertTokenizer
from tests.models.test_from_hugging_face_bert import AT_INPUT, assert_same_outputs, make
from tests.models.tiny import VOCABULARY

# The weights of `transformers` become NumPy arrays before Keras sees them.
pytestmark = pytest.mark.any_backend
CLS = VOCABULARY.index("[CLS]")


def assert_same_weights(actual, expected):
    for weight, like in zip(actual.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, like)


@pytest.mark.parametrize("encoding", ["input", "diet_abs"])
def test_it_is_the_same_as_the_folder(tmp_path, encoding):
    model = make(tmp_path, hidden_dropout_prob=0.3, hidden_act="relu")
    options = {"sharing": "none", "max_sequence_length": 7} if encoding == "diet_abs" else {}
    actual = DietBertBackbone.from_bert(model, encoding, cls_token_id=CLS, **options)
    expected = DietBertBackbone.from_bert(tmp_path, encoding, **options)
    assert_same_weights(actual, expected)
    names = ("dropout", "activation", "num_heads", "max_sequence_length", "num_segments")
    for name in names:
        assert getattr(actual, name) == getattr(expected, name)
    assert (actual.dropout, actual.activation) == (0.3, "relu")


@pytest.mark.parametrize(
    "head", ["SequenceClassification", "PreTraining", "NextSentencePrediction"]
)
def test_models_with_heads(tmp_path, rng, head):
    model = make(tmp_path, f"BertFor{head}")
    assert_same_outputs(model, model.bert, rng)


def test_a_masked_language_model_has_no_pooler(tmp_path, rng):
    model = make(tmp_path, "BertForMaskedLM")
    with pytest.warns(UserWarning, match="the `BertForMaskedLM` has no pooler") as caught:
        assert_same_outputs(model, model.bert, rng)
    files = [warning.filename for warning in caught if "pooler" in str(warning.message)]
    assert files == [assert_same_outputs.__code__.co_filename]


def test_half_precision_and_gradients(tmp_path):
    import torch

    model = make(tmp_path).to(torch.bfloat16).train()
    backbone = DietBertBackbone.from_bert(model, **AT_INPUT)
    expected = model.embeddings.word_embeddings.weight.detach().float().numpy()
    np.testing.assert_array_equal(backbone.token_embedding.get_weights()[0], expected)
    # The copy has its own memory.
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.zero_()
    np.testing.assert_array_equal(backbone.token_embedding.get_weights()[0], expected)
    assert np.abs(expected).max() > 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_decoder": True}, "`is_decoder` must be False.*is_decoder=True in the `BertModel`"),
        ({"layer_norm_eps": 1e-5}, "`layer_norm_eps` must be 1e-12.*1e-05 in the `BertModel`"),
        ({"hidden_act": "mish"}, "`hidden_act` must be one of 'gelu'.*'mish'"),
        ({"num_hidden_layers": 3}, r"the `BertModel` has no weight encoder.layer.2.*without adap"),
        ({"vocab_size": 37}, r"do not fit.*word_embeddings.weight of shape \(31, 15\)"),
    ],
    ids=["decoder", "epsilon", "activation", "layers", "vocabulary"],
)
def test_other_configurations_are_refused(tmp_path, changes, message):
    model = make(tmp_path)
    for name, value in changes.items():
        setattr(model.config, name, value)
    with pytest.raises(ValueError, match=message):
        DietBertBackbone.from_bert(model)


def test_other_objects_are_refused(tmp_path):
    import torch
    import transformers

    make(tmp_path)
    sizes = {"n_layers": 1, "n_heads": 1, "dim": 4, "hidden_dim": 8, "vocab_size": 31}
    other = transformers.DistilBertModel(transformers.DistilBertConfig(**sizes))
    with pytest.raises(ValueError, match=r"`model_type` must be 'bert'.*the `DistilBertModel`"):
        DietBertBackbone.from_bert(other)
    config = transformers.BertConfig()
    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    for wrong, name in ((config, "BertConfig"), (tokenizer, type(tokenizer).__name__)):
        with pytest.raises(ValueError, match=f"must be a model.*Received: {name}"):
            DietBertBackbone.from_bert(wrong)
        with pytest.raises(ValueError, match=rf"`bert` must be a folder.*{name}.*save_pretrained"):
            DietBertTokenizer.from_bert(wrong)
    for wrong in (torch.nn.Linear(2, 3), keras.layers.Dense(1), 3):
        with pytest.raises(ValueError, match=r"`bert` must be .*a BERT of `transformers`"):
            DietBertBackbone.from_bert(wrong)
