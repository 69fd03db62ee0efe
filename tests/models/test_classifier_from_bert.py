"""`DietBertTextClassifier.from_bert`: the head, the names and the kind of labels."""

import keras_hub
import numpy as np
import pytest

from keras_diet.models import DietBertBackbone, DietBertTextClassifier, DietBertTokenClassifier
from tests.helpers import assert_close, to_numpy
from tests.models.tasks import tiny_preprocessor
from tests.models.test_from_hugging_face_bert import make, outputs
from tests.models.tiny import SIZES, TEXTS, random_inputs

NAMES = ["sad", "glad", "neither", "both", "other"]
ID2LABEL = dict(enumerate(NAMES))
SEQUENCES = "BertForSequenceClassification"


def make_classifier(folder, labels=ID2LABEL, **options):
    model = make(folder, SEQUENCES, id2label=labels, **options)
    import torch

    torch.nn.init.normal_(model.classifier.weight, std=0.7)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("source", ["folder", "model"])
def test_outputs_and_names_are_those_of_hugging_face(tmp_path, rng, source):
    model = make_classifier(tmp_path, hidden_dropout_prob=0.3)
    bert = tmp_path if source == "folder" else model
    classifier = DietBertTextClassifier.from_bert(bert, "input")
    inputs = random_inputs(rng)
    expected = outputs(model, inputs).logits.numpy()
    assert np.abs(expected).max() > 0.3
    assert_close(classifier(inputs), expected, 1e-4)
    assert classifier.class_names == NAMES
    assert not classifier.multi_label
    assert classifier.dropout == classifier.backbone.dropout == 0.3
    best = [result[0]["label"] for result in classifier.classify(inputs)]
    assert best == [NAMES[i] for i in expected.argmax(-1)]


@pytest.mark.any_backend
def test_the_backbone_is_that_of_from_bert(tmp_path):
    model = make_classifier(tmp_path)
    preprocessor = tiny_preprocessor("classifier", sequence_length=9)
    options = {"rank": 3, "sharing": "none", "max_sequence_length": 11}
    expected = DietBertBackbone.from_bert(tmp_path, "diet_abs", **options)
    for bert in (tmp_path, model):
        # A model has no vocabulary, but the preprocessor has.
        classifier = DietBertTextClassifier.from_bert(bert, preprocessor=preprocessor, **options)
        for actual, like in zip(
            classifier.backbone.get_weights(), expected.get_weights(), strict=True
        ):
            np.testing.assert_array_equal(actual, like)
    assert classifier.classify(TEXTS[0], top_k=1)[0]["label"] in NAMES


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "labels",
    [{i: f"LABEL_{i}" for i in range(3)}, {0: "a", 1: "a", 2: "b"}],
    ids=["made up", "not different"],
)
def test_names_that_are_not_names(tmp_path, labels):
    classifier = DietBertTextClassifier.from_bert(make_classifier(tmp_path, labels))
    assert (classifier.class_names, classifier.num_classes) == (None, 3)


@pytest.mark.any_backend
def test_names_are_in_the_order_of_their_ids(tmp_path):
    """Here 10 comes before 2, as in text. A single name that looks made up is a name."""
    names = ["LABEL_0", *"abcdefghij"]
    labels = {i: names[i] for i in sorted(range(11), key=str)}
    assert DietBertTextClassifier.from_bert(make_classifier(tmp_path, labels)).class_names == names


@pytest.mark.any_backend
def test_the_kind_of_labels(tmp_path):
    model = make_classifier(tmp_path, problem_type="multi_label_classification")
    assert DietBertTextClassifier.from_bert(model).multi_label
    assert not DietBertTextClassifier.from_bert(tmp_path, multi_label=False).multi_label
    # A name for the number is not the name of a class.
    for name in ("LABEL_0", "score"):
        model = make_classifier(tmp_path, {0: name}, problem_type="regression")
        regression = DietBertTextClassifier.from_bert(model)
        assert (regression.class_names, regression.num_classes) == (None, 1)


@pytest.mark.any_backend
def test_new_names_and_new_heads(tmp_path):
    model = make_classifier(tmp_path)
    kernel = model.classifier.weight.detach().numpy().T
    names = list("abcde")
    renamed = DietBertTextClassifier.from_bert(model, class_names=names)
    assert renamed.class_names == names
    np.testing.assert_array_equal(to_numpy(renamed.output_dense.kernel), kernel)
    new = DietBertTextClassifier.from_bert(model, num_classes=5)
    assert (new.class_names, new.num_classes) == (None, 5)
    assert np.abs(to_numpy(new.output_dense.kernel) - kernel).max() > 0.1
    two = DietBertTextClassifier.from_bert(model, num_classes=2, class_names=["a", "b"])
    assert two.output.shape == (None, 2)
    with pytest.raises(ValueError, match="num_classes=5 and 2 names"):
        DietBertTextClassifier.from_bert(model, class_names=["a", "b"])


@pytest.mark.any_backend
def test_models_without_a_head_for_texts(tmp_path):
    bert = keras_hub.models.BertBackbone(**SIZES)
    (tmp_path / "tokens").mkdir()
    tokens = make(tmp_path / "tokens", "BertForTokenClassification", num_labels=3)
    for source in (bert, make(tmp_path), tmp_path):
        with pytest.raises(ValueError, match="`num_classes` or `class_names` must be given"):
            DietBertTextClassifier.from_bert(source)
        named = DietBertTextClassifier.from_bert(source, "input", class_names=NAMES)
        assert named.num_classes == 5
    with (
        pytest.warns(UserWarning, match="no pooler"),
        pytest.raises(ValueError, match="must be given"),
    ):
        DietBertTextClassifier.from_bert(tokens)


# === Classifiers of words ===


@pytest.fixture
def tagger_of_hugging_face(tmp_path):
    """Hugging Face's model, which has no pooler."""
    model = make(tmp_path, "BertForTokenClassification", id2label=ID2LABEL, hidden_dropout_prob=0.3)
    import torch

    torch.nn.init.normal_(model.classifier.weight, std=0.7)
    model.save_pretrained(tmp_path)
    return model


@pytest.mark.parametrize("source", ["folder", "model"])
@pytest.mark.filterwarnings("error:.*no pooler")
def test_a_tagger_has_the_outputs_and_names_of_hugging_face(
    tmp_path, rng, tagger_of_hugging_face, source
):
    bert = tmp_path if source == "folder" else tagger_of_hugging_face
    tagger = DietBertTokenClassifier.from_bert(bert, "input")
    inputs = random_inputs(rng)
    expected = outputs(tagger_of_hugging_face, inputs).logits.numpy()
    assert np.abs(expected).max() > 0.3
    is_token = inputs["padding_mask"].astype(bool)
    assert_close(to_numpy(tagger(inputs))[is_token], expected[is_token], 1e-4)
    assert tagger.class_names == NAMES
    assert tagger.dropout == tagger.backbone.dropout == 0.3


@pytest.mark.any_backend
def test_arguments_of_a_tagger(tmp_path, tagger_of_hugging_face):
    kernel = tagger_of_hugging_face.classifier.weight.detach().numpy().T
    renamed = DietBertTokenClassifier.from_bert(
        tagger_of_hugging_face,
        "diet_rel",
        tiny_preprocessor("token_classifier", sequence_length=9),
        class_names=list("abcde"),
        activation="softmax",
        segment_encoding="none",
    )
    assert renamed.class_names == list("abcde")
    np.testing.assert_array_equal(to_numpy(renamed.output_dense.kernel), kernel)
    backbone = renamed.backbone
    assert (backbone.position_encoding, backbone.segment_encoding) == ("diet_rel", "none")
    (found,) = renamed.tag([["the", "fox"]])
    assert [word["label"] in "abcde" for word in found] == [True, True]
    assert to_numpy(renamed(random_inputs(np.random.default_rng(3)))).max() <= 1
    new = DietBertTokenClassifier.from_bert(tmp_path, num_classes=5)
    assert (new.class_names, new.num_classes) == (None, 5)
    assert np.abs(to_numpy(new.output_dense.kernel) - kernel).max() > 0.1


@pytest.mark.any_backend
def test_a_tagger_from_models_without_its_head(tmp_path):
    texts = make_classifier(tmp_path)
    for source in (keras_hub.models.BertBackbone(**SIZES), texts):
        tagger = DietBertTokenClassifier.from_bert(source, "input", class_names=["O", "B-X"])
        assert tagger.num_classes == 2
    with pytest.raises(ValueError, match="`num_classes` or `class_names` must be given"):
        DietBertTokenClassifier.from_bert(keras_hub.models.BertBackbone(**SIZES))
