"""`DietBertTokenClassifier`: its loss, data of all kinds, `tag`, files, and errors."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.models import (
    DietBertTokenClassifier,
    DietBertTokenClassifierPreprocessor,
    DietBertTokenizer,
    add_segments,
)
from tests.helpers import assert_close, gradients, once, to_numpy
from tests.models.tasks import random_data, tiny_task
from tests.models.tiny import SIZES, VOCABULARY, random_inputs, randomize_weights, tiny_backbone

NAMES = ["NOUN", "DET", "été", "VERB", "ADJ"]
SENTENCES = [
    ["the", "foxes", "jumped", "over", "a", "mat"],
    ["cats"],
    ["a", "sleeping", "dog"],
    ["birds", "sing"],
]
LABELS = [
    ["DET", "NOUN", "VERB", "été", "DET", "NOUN"],
    ["NOUN"],
    ["DET", "ADJ", "NOUN"],
    ["ADJ", "VERB"],
]
IDS = [[NAMES.index(label) for label in labels] for labels in LABELS]
WEIGHTS = [[0.5, 2.0, 3.0, 0.25, 7.0, 1.5], [0.75], [2.5, 4.0, 0.0], [1.25, 6.0]]
any_backend = pytest.mark.any_backend


def tiny(preprocessor="tiny", seed=6, **arguments):
    if preprocessor == "tiny":
        preprocessor = tiny_preprocessor()
    arguments = {"class_names": NAMES, "dropout": 0.0, **arguments}
    backbone = tiny_backbone(num_layers=1)
    return randomize_weights(
        DietBertTokenClassifier(backbone, preprocessor=preprocessor, **arguments), seed
    )


def tiny_preprocessor(sequence_length=SIZES["max_sequence_length"], **arguments):
    return DietBertTokenClassifierPreprocessor(
        DietBertTokenizer(VOCABULARY), sequence_length, **arguments
    )


@pytest.fixture(scope="module")
def classifier():
    return tiny()


def expected_of_words(classifier, sentences=SENTENCES):
    """The log-probabilities of each word, one sentence after the other."""
    tokenizer = classifier.preprocessor.tokenizer
    rows = []
    for words in sentences:
        tokens = [tokenizer.cls_token_id]
        places = []
        for word in words:
            places.append(len(tokens))
            tokens += [int(token) for token in tokenizer(word)]
        tokens.append(tokenizer.sep_token_id)
        # One length, because JAX compiles for each.
        padding = [0] * (13 - len(tokens))
        inputs = {
            "token_ids": np.array([tokens + padding]),
            "segment_ids": np.zeros((1, 13), int),
            "padding_mask": np.array([[1] * len(tokens) + padding]),
        }
        hidden = to_numpy(classifier.backbone(inputs)["sequence_output"])[0, places]
        kernel, bias = map(to_numpy, classifier.output_dense.weights)
        logits = (hidden @ kernel + bias).astype("float64")
        rows.append(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))
    return rows


def loss_and_accuracy(classifier, weights):
    """The mean over words, from loops."""
    total = correct = count = 0.0
    for log_p, labels, of_words in zip(expected_of_words(classifier), IDS, weights, strict=True):
        for row, label, weight in zip(log_p, labels, of_words, strict=True):
            total -= weight * row[label]
            correct += weight * (row.argmax() == label)
            count += weight
    return [total / count, correct / count]


ONES = [[1.0] * len(words) for words in SENTENCES]


# === Outputs and loss ===


def test_logits_of_tokens(classifier, rng):
    inputs = random_inputs(rng)
    hidden = to_numpy(classifier.backbone(inputs)["sequence_output"])
    kernel, bias = map(to_numpy, classifier.output_dense.weights)
    assert kernel.shape == (15, 5)
    assert_close(classifier(inputs), hidden @ kernel + bias, 1e-5)


@pytest.mark.parametrize("weights", [WEIGHTS, *once(None)])
def test_loss_and_accuracy_are_means_over_words(classifier, weights):
    expected = loss_and_accuracy(classifier, weights or ONES)
    assert 0 < expected[1] < 1
    actual = classifier.evaluate(SENTENCES, LABELS, 4, sample_weight=weights, verbose=0)
    assert actual == pytest.approx(expected, rel=1e-4)
    assert classifier.test_on_batch(SENTENCES, LABELS, weights) == pytest.approx(actual, rel=1e-5)


@any_backend
def test_weights_of_sentences(classifier):
    weights = np.array([0.5, 7.0, 3.0, 2.0])
    rows = [[w] * len(words) for w, words in zip(weights, SENTENCES, strict=True)]
    actual = classifier.evaluate(SENTENCES, IDS, 4, sample_weight=weights, verbose=0)
    assert actual == pytest.approx(loss_and_accuracy(classifier, rows), rel=1e-4)


@any_backend
def test_probabilities_as_outputs():
    model = tiny(activation="softmax")
    actual = model.evaluate(SENTENCES, LABELS, 4, verbose=0)
    assert actual == pytest.approx(loss_and_accuracy(model, ONES), rel=1e-4)
    assert_close(model.predict(SENTENCES, verbose=0).sum(-1), np.ones((4, 13)), 1e-5)
    with pytest.warns(UserWarning, match="activation='softmax'|takes logits"):
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def test_every_weight_but_the_pooler_has_a_gradient(rng):
    model = tiny(preprocessor=None)
    inputs, labels, weights = random_data("token_classifier", rng)

    def loss():
        outputs = model(inputs, training=True)
        return model.compute_loss(y=labels, y_pred=outputs, sample_weight=weights)

    variables = model.trainable_variables
    for variable, gradient in zip(variables, gradients(loss, variables), strict=True):
        unused = "pooled_dense" in variable.path or "key/bias" in variable.path
        assert (np.abs(gradient).max() > 1e-5) != unused, variable.path


@any_backend
@pytest.mark.filterwarnings("error::UserWarning")
def test_training_learns_the_classes_of_words():
    keras.utils.set_random_seed(3)
    model = tiny()
    model.compile(keras.optimizers.Adam(0.02))
    data = (SENTENCES * 8, LABELS * 8)
    history = model.fit(*data, batch_size=8, epochs=12, validation_data=data, verbose=0).history
    assert history["val_sparse_categorical_accuracy"][-1] > 0.95
    found = [[word["label"] for word in words] for words in model.tag(SENTENCES)]
    assert np.mean(np.concatenate(found) == np.concatenate(LABELS)) > 0.95


@any_backend
def test_dropout_is_before_the_head(rng):
    model = tiny(dropout=0.6)
    inputs = random_inputs(rng)
    assert abs(to_numpy(model(inputs, training=True)) - to_numpy(model(inputs))).max() > 1e-3


# === Kinds of data ===


class Batches(keras.utils.PyDataset):
    def __init__(self, *data):
        super().__init__()
        self.data = data

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return tuple(part[2 * index : 2 * index + 2] for part in self.data)


class Examples:
    """A dataset of PyTorch."""

    def __init__(self, *data):
        self.data = list(zip(*data, strict=True))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]


def as_dataset(kind, *data):
    if kind == "py_dataset":
        return Batches(*data)
    if kind == "generator":
        return (Batches(*data)[i] for i in range(2))
    if kind == "grain":
        grain = pytest.importorskip("grain")
        source = grain.MapDataset.source(list(zip(*data, strict=True)))
        return source.batch(2, batch_fn=lambda rows: tuple(map(list, zip(*rows, strict=True))))
    if kind == "data_loader":
        torch = pytest.importorskip("torch")
        return torch.utils.data.DataLoader(
            Examples(*data),
            batch_size=2,
            collate_fn=lambda rows: tuple(map(list, zip(*rows, strict=True))),
        )
    tf = pytest.importorskip("tensorflow")
    dataset = tf.data.Dataset.from_tensor_slices(tuple(map(tf.ragged.constant, data)))
    return dataset.batch(2)


@pytest.mark.parametrize(
    "kind", ["generator", "tf.data", *once("py_dataset", "grain", "data_loader")]
)
def test_datasets(classifier, kind):
    expected = classifier.evaluate(SENTENCES, IDS, 2, sample_weight=WEIGHTS, verbose=0)
    for labels in (LABELS, IDS):
        dataset = as_dataset(kind, SENTENCES, labels, WEIGHTS)
        assert classifier.evaluate(dataset, verbose=0) == pytest.approx(expected, rel=1e-5)
    outputs = classifier.predict(as_dataset(kind, SENTENCES), verbose=0)
    assert_close(outputs, classifier.predict(SENTENCES, verbose=0), 1e-5)


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize("kind", ["tf.data", *once("lists", "data_loader")])
def test_training_on_datasets(kind):
    """One step of SGD from the same weights, whatever holds the data."""
    inputs, labels, weights = tiny_preprocessor()(SENTENCES[:2], IDS[:2], WEIGHTS[:2])
    model = tiny(preprocessor=None)
    model.compile(keras.optimizers.SGD(0.1))
    model.train_on_batch({k: to_numpy(v) for k, v in inputs.items()}, labels, weights)
    parts = (SENTENCES[:2], LABELS[:2], WEIGHTS[:2])
    trained = tiny()
    # XLA takes longer to compile.
    trained.compile(keras.optimizers.SGD(0.1), jit_compile=keras.config.backend() == "jax")
    if kind == "lists":
        trained.fit(*parts[:2], sample_weight=parts[2], verbose=0)
    else:
        trained.fit(as_dataset(kind, *parts), verbose=0)
    actual = to_numpy(trained.output_dense.kernel)
    assert_close(actual, model.output_dense.kernel, 1e-5)
    assert abs(actual - to_numpy(tiny().output_dense.kernel)).max() > 1e-3


@any_backend
def test_validation_split_and_rectangular_lists():
    """Sentences of one length are lists of lists too."""
    model = tiny()
    sentences, labels = [["the", "fox"], ["a", "cat"], ["birds", "sing"]], [[1, 0], [1, 0], [0, 3]]
    history = model.fit(sentences, labels, validation_split=0.4, verbose=0).history
    expected = model.evaluate(sentences[1:], labels[1:], verbose=0)
    assert history["val_loss"] == pytest.approx(expected[:1], rel=1e-4)
    assert_close(
        model.predict(np.array(sentences), verbose=0), model.predict(sentences, verbose=0), 1e-6
    )


@any_backend
def test_buckets():
    model = tiny(preprocessor=tiny_preprocessor(length_buckets=(5, 7)))
    expected = tiny().evaluate(SENTENCES, LABELS, 1, verbose=0)
    assert model.evaluate(SENTENCES, LABELS, 1, verbose=0) == pytest.approx(expected, rel=1e-4)
    # Outputs of several batches are joined, so they have one length.
    outputs = model.predict(SENTENCES, batch_size=1, verbose=0)
    assert outputs.shape == (4, 13, 5)
    assert model.preprocessor.length_buckets == (5, 7)
    assert model.tag(SENTENCES)[1] == [pytest.approx(word) for word in tiny().tag(SENTENCES)[1]]


@any_backend
def test_without_preprocessor(rng):
    model = tiny(preprocessor=None)
    inputs = random_inputs(rng)
    labels = rng.integers(0, 5, (2, 11))
    mask = inputs["padding_mask"]
    expected = model.evaluate(inputs, labels, sample_weight=mask, verbose=0)
    names = np.array(NAMES)[labels]
    assert model.evaluate(inputs, names, sample_weight=mask, verbose=0) == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"shape of `x\['token_ids'\]`, \(2, 11\).*\(2, 7\)"):
        model.evaluate(inputs, labels[:, :7], verbose=0)
    with pytest.raises(
        ValueError, match=r"`tag` needs a preprocessor. Received: preprocessor=None"
    ):
        model.tag(SENTENCES)


# === Errors ===

BAD = {
    "texts": ((["the fox", "a cat"], [[1, 0], [1, 0]]), "a string, 'the fox', in row 0"),
    "an empty sentence": (([["the"], []], [[1], []]), "an empty list in row 1"),
    "fewer labels": ((SENTENCES, [*LABELS[:3], ["ADJ"]]), "1 values for 2 words in row 3"),
    "a label of a sentence": ((SENTENCES, [0, 1, 2, 3]), "Received: 0 in row 0"),
    "an unknown name": ((SENTENCES, [*LABELS[:2], ["DET", "X", "NOUN"], [0, 1]]), "'X' in row 2"),
    "a class too high": (
        (SENTENCES, [*IDS[:3], [5, 0]]),
        r"\[0, 5\). Received: labels from 0 to 5",
    ),
    "a missing label": ((SENTENCES, [*IDS[:3], [None, 0]]), "`y` must be numbers"),
    "no labels": ((SENTENCES, None), "needs labels for its loss"),
    "fewer sentences": ((SENTENCES[:3], LABELS), "3 in `x`, 4 in `y`"),
}


@any_backend
@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_right_is_refused(classifier, case):
    data, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        classifier.fit(*data, verbose=0)
    if data[1] is not None:
        generator = iter([data])
        with pytest.raises(ValueError, match=message):
            classifier.evaluate(generator, verbose=0)


@any_backend
def test_labels_without_names():
    model = tiny(class_names=None, num_classes=5)
    with pytest.raises(ValueError, match=r"`y` must be numbers. Received: text.*`class_names`"):
        model.evaluate(SENTENCES, LABELS, verbose=0)
    expected = tiny().evaluate(SENTENCES, IDS, verbose=0)
    assert model.evaluate(SENTENCES, IDS, verbose=0) == pytest.approx(expected)
    assert model.tag(SENTENCES[1:2])[0][0]["label"] in range(5)


@any_backend("tensorflow")
def test_errors_in_tf_data_name_the_row(classifier):
    tf = pytest.importorskip("tensorflow")
    for labels, message in (
        ([*LABELS[:3], ["ADJ"]], "1 values for 2 words in row 1"),
        ([*LABELS[:3], ["ADJ", "X"]], "'X' in row 1"),
        ([*IDS[:3], [5, 0]], "labels from 0 to 5"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            classifier.evaluate(as_dataset("tf.data", SENTENCES, labels), verbose=0)


@any_backend
def test_arguments_that_cannot_be_right():
    with pytest.raises(ValueError, match=r"at least 2. Received: num_classes=1"):
        tiny(class_names=None, num_classes=1)
    with pytest.raises(ValueError, match="`num_classes` or `class_names` must be given"):
        tiny(class_names=None)
    with pytest.raises(ValueError, match="must be a `DietBertTokenClassifierPreprocessor`"):
        tiny(preprocessor=tiny_task("classifier").preprocessor)
    with pytest.raises(ValueError, match=r"`class_weight` must be `None`.*`sample_weight`"):
        tiny().fit(SENTENCES, LABELS, class_weight={0: 2.0})
    model = tiny()
    model.compile(loss=keras.losses.CategoricalCrossentropy(from_logits=True))
    with pytest.raises(ValueError, match="Classes as integers need a sparse loss"):
        model.fit(SENTENCES, LABELS, verbose=0)


# === tag ===


def assert_tags(found, sentences, log_probabilities):
    assert [[word["word"] for word in words] for words in found] == sentences
    for words, of_words in zip(found, log_probabilities, strict=True):
        for word, row in zip(words, of_words, strict=True):
            assert word["label"] == NAMES[row.argmax()]
            assert word["probability"] == pytest.approx(np.exp(row.max()), rel=1e-4)
            assert sorted(word) == ["label", "probability", "word"]


def test_tags_of_words(classifier):
    found = classifier.tag(SENTENCES, batch_size=3)
    assert_tags(found, SENTENCES, expected_of_words(classifier))
    assert len({word["label"] for words in found for word in words}) > 1


@any_backend
@pytest.mark.filterwarnings("error::UserWarning")
def test_long_sentences_are_tagged_in_parts():
    model = tiny(preprocessor=tiny_preprocessor(sequence_length=6))
    sentence = ["the", "foxes", "sing", "sleeping-dogs", "a", "birds"]
    # Four tokens: the fox ##es sing | sleep ##ing - dog ##s | a bird ##s.
    parts = [sentence[:3], sentence[3:4], sentence[4:]]
    of_parts = expected_of_words(model, [parts[0], ["sleeping-dog"], parts[2]])
    found = model.tag([["cats"], sentence])
    expected = [*expected_of_words(model, [["cats"]]), np.concatenate(of_parts)]
    assert_tags(found, [["cats"], sentence], expected)


@any_backend
def test_every_word_gets_a_tag(classifier):
    sentence = ["the", "\x07", "unknown", "fox"] * 17
    found = classifier.tag([sentence])[0]
    assert [word["word"] for word in found] == sentence


@any_backend
def test_probabilities_in_half_precision():
    model = randomize_weights(
        DietBertTokenClassifier(
            tiny_backbone(num_layers=1, dtype="mixed_bfloat16"), 5, tiny_preprocessor()
        )
    )
    found = model.tag(SENTENCES[1:2])[0][0]
    assert 0.2 <= found["probability"] <= 1.0
    # [CLS], the first token of the word.
    logits = model.predict(SENTENCES[1:2], verbose=0)[0, 1].astype("float64")
    expected = np.exp(logits.max()) / np.exp(logits).sum()
    assert found["probability"] == pytest.approx(expected, rel=1e-5)


@any_backend
def test_the_default_learning_rate_is_that_of_kerashub():
    assert float(tiny().optimizer.learning_rate) == pytest.approx(5e-5)


@any_backend
def test_outputs_that_are_not_numbers_are_refused():
    model = tiny()
    model.output_dense.bias.assign([np.nan, *[0.0] * 4])
    with pytest.raises(ValueError, match=r"finite outputs\. Received: NaN"):
        model.tag(SENTENCES)


@any_backend
def test_tag_needs_sentences_and_probabilities(classifier):
    with pytest.raises(ValueError, match=r"`sentences` must hold a list.*'a cat', in row 0"):
        classifier.tag(["a cat", "the fox"])
    with pytest.raises(ValueError, match=r"`tag` needs a model that returns logits.*'relu'"):
        tiny(activation="relu").tag(SENTENCES)


# === Files, LoRA, quantization, segments ===


@any_backend
def test_presets(tmp_path):
    model = tiny()
    model.save_to_preset(str(tmp_path))
    loaded = DietBertTokenClassifier.from_preset(str(tmp_path))
    assert loaded.class_names == NAMES
    assert loaded.tag(SENTENCES) == model.tag(SENTENCES)
    assert loaded.get_config()["num_classes"] is None
    renamed = DietBertTokenClassifier.from_preset(str(tmp_path), class_names=list("abcde"))
    assert renamed.tag(SENTENCES)[0][0]["label"] in "abcde"
    new = DietBertTokenClassifier.from_preset(str(tmp_path), num_classes=3)
    assert new.class_names is None
    assert new.predict(SENTENCES, verbose=0).shape == (4, 13, 3)
    with pytest.raises(ValueError, match="For a new head, pass num_classes=2 too"):
        DietBertTokenClassifier.from_preset(str(tmp_path), class_names=["x", "y"])


@any_backend
def test_it_starts_from_the_preset_of_another_task(tmp_path):
    masked_lm = randomize_weights(tiny_task("masked_lm"))
    masked_lm.save_to_preset(str(tmp_path))
    model = DietBertTokenClassifier.from_preset(str(tmp_path), num_classes=3)
    assert type(model.preprocessor) is DietBertTokenClassifierPreprocessor
    assert model.preprocessor.sequence_length == 13
    inputs = random_inputs(np.random.default_rng(5))
    expected = masked_lm.backbone(inputs)["sequence_output"]
    assert_close(model.backbone(inputs)["sequence_output"], expected, 1e-6)


@any_backend
def test_keras_files(tmp_path):
    model = tiny()
    model.fit(SENTENCES, LABELS, verbose=0)
    model.save(tmp_path / "task.keras")
    loaded = keras.saving.load_model(tmp_path / "task.keras")
    assert type(loaded) is DietBertTokenClassifier
    assert loaded.tag(SENTENCES) == model.tag(SENTENCES)
    expected = model.evaluate(SENTENCES, LABELS, verbose=0)
    assert loaded.evaluate(SENTENCES, LABELS, verbose=0) == pytest.approx(expected)


def test_lora_trains_the_head_and_the_adapters(rng):
    model = randomize_weights(tiny_task("token_classifier", with_preprocessor=False))
    inputs, labels, weights = random_data("token_classifier", rng)
    before = to_numpy(model(inputs))
    model.backbone.enable_lora(rank=2)
    assert_close(model(inputs), before, 1e-6)
    model.compile(keras.optimizers.SGD(0.5))
    model.fit(inputs, labels, sample_weight=weights, verbose=0)
    trained = {weight.path.split("/")[-1] for weight in model.backbone.trainable_weights}
    assert trained == {"lora_kernel_a", "lora_kernel_b"}
    assert abs(to_numpy(model(inputs)) - before).max() > 1e-4


@pytest.mark.usefixtures("quick_quantization")
def test_quantized_models_are_loaded_as_saved(rng, tmp_path):
    model = randomize_weights(tiny_task("token_classifier", with_preprocessor=False))
    inputs = random_inputs(rng)
    expected = to_numpy(model(inputs))
    model.quantize("int8")
    outputs = model.predict(inputs, verbose=0)
    error = abs(outputs - expected).max() / abs(expected).max()
    assert 1e-6 < error < 0.05
    model.save_to_preset(str(tmp_path))
    loaded = DietBertTokenClassifier.from_preset(str(tmp_path), preprocessor=None)
    assert_close(loaded.predict(inputs, verbose=0), outputs, 1e-6)


@any_backend
def test_segments_are_added_to_a_task(rng):
    backbone = randomize_weights(tiny_backbone(segment_encoding="none", num_layers=1))
    model = DietBertTokenClassifier(backbone, 3)
    extended = add_segments(model)
    assert type(extended) is DietBertTokenClassifier
    inputs = random_inputs(rng)
    assert_close(extended(inputs), ops.convert_to_numpy(model(inputs)), 1e-5)
