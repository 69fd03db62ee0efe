"""What all tasks share: pairs of raw texts, presets, the optimizer's state, refusals."""

import json
from pathlib import Path

import h5py
import keras
import keras_hub
import keras_nlp
import numpy as np
import pytest

import keras_diet
from keras_diet.models import DietBertBackbone, DietBertMaskedLM, DietBertTextClassifier
from tests.helpers import assert_close, once, to_numpy
from tests.models.tasks import CLASSES, TASKS, random_data, tiny_preprocessor, tiny_task
from tests.models.tiny import SIZES, TEXTS, VOCABULARY, randomize_weights, tiny_backbone

every_task = pytest.mark.parametrize("task", TASKS)
with_head = pytest.mark.parametrize("task", ["masked_lm", "classifier"])
A, B = TEXTS[:2], TEXTS[2:4]
LABELS = {
    "masked_lm": None,
    "classifier": np.array([6, 2]),
    "embedder": np.ones((2, 15), dtype="float32"),
}
BASES = {"masked_lm": "MaskedLM", "classifier": "TextClassifier", "embedder": "TextEmbedder"}


def without_chance(model, task):
    """Mask every token, so that nothing is random."""
    if task == "masked_lm":
        model.preprocessor = tiny_preprocessor(
            task,
            mask_selection_rate=1.0,
            mask_selection_length=13,
            mask_token_rate=1.0,
            random_token_rate=0.0,
        )
    return model


def compiled_task(task, **arguments):
    model = randomize_weights(tiny_task(task, **arguments))
    if task == "embedder":
        model.compile(loss="mse")
    return without_chance(model, task)


# === Pairs ===


@pytest.mark.parametrize("task", ["classifier", *once("masked_lm", "embedder")])
def test_pairs_reach_the_model_as_two_segments(task):
    """In `predict`, `evaluate`, `fit`, and in the steps of a custom training loop."""
    model = compiled_task(task)
    x = keras.utils.unpack_x_y_sample_weight(model.preprocessor((A, B)))[0]
    expected = to_numpy(x["segment_ids"])
    assert set(expected.ravel()) == {0, 1}
    seen = []
    preprocess = model.preprocessor.call

    def call(x, y=None, sample_weight=None):
        outputs = preprocess(x, y, sample_weight)
        seen.append(keras.utils.unpack_x_y_sample_weight(outputs)[0]["segment_ids"])
        return outputs

    model.preprocessor.call = call
    y = LABELS[task]
    steps = {
        "predict": lambda: model.predict((A, B), verbose=0),
        "evaluate": lambda: model.evaluate((A, B), y, verbose=0),
        "fit": lambda: model.fit((A, B), y, validation_data=((A, B), y), verbose=0),
        "train_on_batch": lambda: model.train_on_batch((A, B), y),
        "predict_on_batch": lambda: model.predict_on_batch((A, B)),
    }
    for name, step in steps.items():
        seen.clear()
        step()
        assert seen, name
        for segment_ids in seen:
            np.testing.assert_array_equal(to_numpy(segment_ids), expected, err_msg=name)


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        pytest.param("classifier", "tf.data", marks=pytest.mark.any_backend("tensorflow")),
        ("masked_lm", "grain"),
    ],
)
def test_pairs_in_datasets(task, kind):
    """KerasHub's harness reads those of the classifier from `tf.data`."""
    model = without_chance(randomize_weights(tiny_task(task)), task)
    expected = model.predict((A, B), verbose=0)
    assert np.abs(model.predict(A, verbose=0) - expected).max() > 1e-3
    if kind == "grain":
        grain = pytest.importorskip("grain")
        elements = [((a, b),) for a, b in zip(A, B, strict=True)]
        dataset = grain.MapDataset.source(elements).batch(2)
    else:
        tf = pytest.importorskip("tensorflow")
        pytest.importorskip("tensorflow_text")
        dataset = tf.data.Dataset.from_tensor_slices(((A, B),)).batch(2)
    assert_close(model.predict(dataset, verbose=0), expected)


@every_task
def test_second_texts_as_labels_are_refused(task):
    model = compiled_task(task)
    for step in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match=r"`y` must be numbers(.|\n)*`x=\(a, b\)`"):
            step(A, B, verbose=0)


# === Presets ===


@pytest.fixture(scope="module")
def presets(tmp_path_factory):
    """A model of each task, and the folder that it was saved to."""
    keras.utils.set_random_seed(13)
    saved = {}
    for task in TASKS:
        model = randomize_weights(tiny_task(task, rank=7, sharing="head-wise"))
        folder = tmp_path_factory.mktemp(task)
        model.save_to_preset(str(folder))
        saved[task] = model, folder
    return saved


@pytest.mark.parametrize(
    ("task", "hub"), [("masked_lm", keras_hub), ("classifier", keras_nlp), ("embedder", None)]
)
def test_presets_are_found_and_equal(rng, presets, task, hub):
    model, folder = presets[task]
    cls = CLASSES[task][0]
    loaded = (getattr(hub.models, BASES[task]) if hub else cls).from_preset(str(folder))
    assert type(loaded) is cls
    assert loaded.get_config()["backbone"] == model.get_config()["backbone"]
    assert loaded.preprocessor.get_config() == model.preprocessor.get_config()
    assert loaded.preprocessor.tokenizer.get_vocabulary() == VOCABULARY
    inputs = random_data(task, rng)[0]
    assert_close(loaded(inputs), model(inputs), 1e-6)


@pytest.mark.any_backend
@every_task
def test_parts_of_presets_are_found(presets, task):
    model, folder = presets[task]
    for hub in (keras_hub.models, keras_nlp.models):
        preprocessor = getattr(hub, f"{BASES[task]}Preprocessor").from_preset(str(folder))
        assert type(preprocessor) is CLASSES[task][1]
        assert preprocessor.get_config() == model.preprocessor.get_config()
        assert type(hub.Backbone.from_preset(str(folder))) is DietBertBackbone
        assert hub.Tokenizer.from_preset(str(folder)).get_vocabulary() == VOCABULARY


@pytest.mark.any_backend
@every_task
def test_preprocessors_make_their_own_presets(tmp_path, task):
    model = tiny_task(task)
    model.backbone.save_to_preset(str(tmp_path))
    model.preprocessor.save_to_preset(str(tmp_path))
    loaded = CLASSES[task][1].from_preset(str(tmp_path))
    assert loaded.get_config() == model.preprocessor.get_config()


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("source", "task"),
    [
        ("masked_lm", "classifier"),
        ("masked_lm", "embedder"),
        ("classifier", "masked_lm"),
        ("embedder", "classifier"),
    ],
)
def test_another_task_starts_from_the_backbone(rng, presets, source, task):
    """With a new head, and sequences that the backbone can take."""
    model, folder = presets[source]
    arguments = {"num_classes": 3} if task == "classifier" else {}
    base = getattr(keras_hub.models, BASES[task])
    loaded = base.from_preset(str(folder), **arguments)
    assert type(loaded) is CLASSES[task][0]
    assert loaded.preprocessor.sequence_length == SIZES["max_sequence_length"]
    inputs = random_data("classifier", rng)[0]
    expected = model.backbone(inputs)["sequence_output"]
    assert_close(loaded.backbone(inputs)["sequence_output"], expected, 1e-6)


@pytest.mark.any_backend
def test_one_class_for_each_task_and_backbone():
    registered = set(keras.saving.get_custom_objects().values())
    for task, base in BASES.items():
        for kind in (base, f"{base}Preprocessor"):
            found = [
                cls
                for cls in registered
                if isinstance(cls, type)
                and issubclass(cls, getattr(keras_hub.models, kind))
                and cls.backbone_cls is DietBertBackbone
            ]
            assert found == [CLASSES[task][kind.endswith("Preprocessor")]]


@pytest.mark.any_backend
def test_stock_bert_still_resolves_to_itself(tmp_path):
    backbone = keras_hub.models.BertBackbone(**SIZES)
    backbone.save_to_preset(str(tmp_path))
    for base in BASES.values():
        arguments = {"num_classes": 2} if base == "TextClassifier" else {}
        loaded = getattr(keras_hub.models, base).from_preset(
            str(tmp_path), preprocessor=None, load_weights=False, **arguments
        )
        assert type(loaded) is getattr(keras_hub.models, f"Bert{base}")


@pytest.mark.any_backend
@every_task
def test_metadata_names_library_and_tasks(presets, task):
    metadata = json.loads((presets[task][1] / "metadata.json").read_text())
    assert metadata["tasks"] == ["MaskedLM", "TextClassifier", "TextEmbedder"]
    assert metadata["keras_diet_version"] == keras_diet.__version__
    assert set(metadata) >= {"keras_hub_version", "parameter_count"}


@pytest.mark.any_backend
@every_task
def test_keras_files(rng, presets, tmp_path, task):
    model, _ = presets[task]
    model.save(tmp_path / "task.keras")
    loaded = keras.saving.load_model(tmp_path / "task.keras")
    assert type(loaded) is CLASSES[task][0]
    assert loaded.preprocessor.tokenizer.get_vocabulary() == VOCABULARY
    inputs = random_data(task, rng)[0]
    assert_close(loaded(inputs), model(inputs), 1e-6)


# === The optimizer ===


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("task", ["masked_lm", "embedder"])
def test_tasks_without_the_pooler_are_trained_without_warning(rng, task):
    model = tiny_task(task, with_preprocessor=False)
    model.compile("adam", "mse" if task == "embedder" else model.loss)
    model.fit(*random_data(task, rng)[:2], verbose=0)
    model.train_on_batch(*random_data(task, rng)[:2])


@pytest.mark.any_backend
def test_other_weights_without_gradients_give_a_warning(rng):
    model = tiny_task("embedder", with_preprocessor=False)
    model.unused = model.add_weight(name="unused", shape=(3,))
    model.compile("adam", "mse")
    with pytest.warns(UserWarning, match="unused', 'pooled_dense/kernel"):
        model.fit(*random_data("embedder", rng)[:2], verbose=0)


@pytest.mark.any_backend
@pytest.mark.filterwarnings("error::UserWarning")
@every_task
def test_a_task_that_was_never_trained_is_loaded_without_warning(tmp_path, task):
    model = tiny_task(task)
    model.save(tmp_path / "task.keras")
    loaded = keras.saving.load_model(tmp_path / "task.keras")
    # KerasHub leaves an embedder without a loss.
    assert loaded.compiled == model.compiled
    assert not loaded.compiled or not loaded.optimizer.built


def datasets_in(file):
    sizes = {}
    with h5py.File(file) as h5:
        h5.visititems(
            lambda name, item: sizes.update({name: item.size}) if hasattr(item, "size") else None
        )
    return sizes


@pytest.mark.parametrize(
    "task", ["masked_lm", pytest.param("classifier", marks=pytest.mark.any_backend)]
)
def test_presets_hold_no_optimizer_state(rng, tmp_path, task):
    model = tiny_task(task, with_preprocessor=False)
    inputs, labels, weights = random_data(task, rng)
    model.fit(inputs, labels, sample_weight=weights, verbose=0)
    assert len(model.optimizer.variables) > len(model.trainable_variables)
    before = [to_numpy(variable) for variable in model.optimizer.variables]
    model.save_to_preset(str(tmp_path))

    sizes = datasets_in(tmp_path / "task.weights.h5")
    backbone = {id(weight) for weight in model.backbone.weights}
    head = [weight for weight in model.weights if id(weight) not in backbone]
    assert sum(sizes.values()) == sum(int(np.prod(weight.shape)) for weight in head)
    assert not any("optimizer" in name for name in sizes)

    # The model keeps its optimizer state, and training continues.
    assert model.compiled
    for variable, value in zip(model.optimizer.variables, before, strict=True):
        np.testing.assert_array_equal(to_numpy(variable), value)
    model.fit(inputs, labels, sample_weight=weights, verbose=0)
    assert int(model.optimizer.iterations) == 2
    loaded = CLASSES[task][0].from_preset(str(tmp_path))
    assert loaded.compiled
    assert int(loaded.optimizer.iterations) == 0


@pytest.mark.any_backend
@with_head
def test_loading_a_head_leaves_the_optimizer(rng, tmp_path, task, recwarn):
    model = tiny_task(task, with_preprocessor=False)
    inputs, labels, weights = random_data(task, rng)
    model.fit(inputs, labels, sample_weight=weights, verbose=0)
    file = tmp_path / "head.weights.h5"
    model.save_task_weights(file)
    expected = model.predict(inputs, verbose=0)
    for weight in model.weights:
        if weight.path.startswith(("logits", "mlm_head")):
            weight.assign(0 * to_numpy(weight))
    recwarn.clear()
    model.load_task_weights(file)
    assert not [w for w in recwarn if "optimizer" in str(w.message)]
    assert int(model.optimizer.iterations) == 1
    assert_close(model.predict(inputs, verbose=0), expected, 1e-6)


@pytest.mark.any_backend
def test_heads_saved_with_optimizer_state_can_be_read(rng, tmp_path):
    """As KerasHub writes them."""
    model = tiny_task("classifier", with_preprocessor=False)
    inputs, labels, _ = random_data("classifier", rng)
    model.fit(inputs, labels, verbose=0)
    model.save_to_preset(str(tmp_path))
    with_state = tmp_path / "task.weights.h5"
    keras_hub.models.Task.save_task_weights(model, with_state)
    assert any("optimizer" in name for name in datasets_in(with_state))
    loaded = DietBertTextClassifier.from_preset(str(tmp_path))
    assert_close(loaded(inputs), model(inputs), 1e-6)


# === Refusals ===


@pytest.mark.any_backend
@every_task
@pytest.mark.parametrize("arguments", [{"num_clases": 2}, {"backbone_dropout": 0.1}])
def test_unknown_arguments_are_refused(task, arguments):
    cls, _, head = CLASSES[task]
    with pytest.raises(TypeError, match=next(iter(arguments))):
        cls(backbone=tiny_backbone(num_layers=1), **head, **arguments)


@pytest.mark.any_backend
@every_task
def test_empty_batches_are_refused(task):
    model = compiled_task(task)
    y = None if task == "masked_lm" else []
    with pytest.raises(ValueError, match="at least one example"):
        model.fit([], y, verbose=0)
    with pytest.raises(ValueError, match="at least one example"):
        model.fit(A, LABELS[task], validation_data=([], y), verbose=0)
    with pytest.raises(ValueError, match="at least one example"):
        model.evaluate(([], []), y, verbose=0)
    with pytest.raises(ValueError, match="at least one example"):
        model.predict([], verbose=0)
    model.preprocessor = None
    with pytest.raises(ValueError, match="at least one example"):
        model.predict({name: np.ones((0, 7)) for name in model.input}, verbose=0)


@pytest.mark.any_backend
@every_task
def test_pairs_of_unequal_length_are_refused(task):
    with pytest.raises(ValueError, match=r"same batch size(.|\n)*Received: batch sizes \[2, 1\]"):
        tiny_task(task).predict((A, B[:1]), verbose=0)


@pytest.mark.any_backend
@every_task
def test_vocabularies_that_do_not_fit_are_refused(task):
    too_many = [*VOCABULARY, "extra"]
    with pytest.raises(ValueError, match=r"vocabulary_size=31 and a tokenizer of 32 tokens"):
        tiny_task(task, vocabulary=too_many)
    tiny_task(task, vocabulary_size=32)
    model = tiny_task(task)
    model.preprocessor = tiny_preprocessor(task, too_many)
    with pytest.raises(ValueError, match=r"vocabulary_size=31 and a tokenizer of 32 tokens"):
        model.predict(A, verbose=0)


@pytest.mark.any_backend
@every_task
def test_more_texts_than_segments_are_refused(task):
    model = compiled_task(task)
    words = r"Received: 3 texts, backbone.num_segments=2"
    with pytest.raises(ValueError, match=words):
        model.predict((A, B, A), verbose=0)
    with pytest.raises(ValueError, match=words):
        model.fit((A, B, A), LABELS[task], verbose=0)
    for arguments in ({"num_segments": 3}, {"segment_encoding": "none"}):
        tiny_task(task, **arguments).predict((A, B, A), verbose=0)


@pytest.mark.any_backend
@every_task
@pytest.mark.parametrize("x", [[A, B], list(zip(A, B, strict=True)), np.array([A, B])], ids=len)
def test_pairs_in_lists_are_refused(task, x):
    for call in (compiled_task(task).predict, compiled_task(task).evaluate):
        with pytest.raises(ValueError, match=r"pass a tuple \(a, b\)"):
            call(x, verbose=0)


@pytest.mark.any_backend
@every_task
def test_preprocessors_of_longer_sequences_are_refused(task):
    cls, _, head = CLASSES[task]
    longer = tiny_preprocessor(task, sequence_length=14)
    words = r"preprocessor.sequence_length=14, backbone.max_sequence_length=13"
    with pytest.raises(ValueError, match=words):
        cls(backbone=tiny_backbone(num_layers=1), preprocessor=longer, **head)
    model = tiny_task(task)
    model.preprocessor.sequence_length = 14
    with pytest.raises(ValueError, match=words):
        model.predict(A, verbose=0)


# === Damaged presets ===


@pytest.fixture
def copied(presets, tmp_path):
    """Copies of presets, to damage."""

    def copy(task):
        for file in presets[task][1].rglob("*.*"):
            target = tmp_path / file.relative_to(presets[task][1])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
        return tmp_path

    return copy


MISSING = [
    "config.json",
    "model.weights.h5",
    "task.json",
    "task.weights.h5",
    "tokenizer.json",
    "preprocessor.json",
    "assets/tokenizer/vocabulary.txt",
]


@pytest.mark.any_backend
@pytest.mark.parametrize("file", MISSING)
def test_presets_with_missing_files_are_refused(copied, file):
    folder = copied("classifier")
    (folder / file).unlink()
    if file in ("preprocessor.json", "tokenizer.json"):
        # The task's own file has them too.
        loaded = DietBertTextClassifier.from_preset(str(folder))
        assert loaded.preprocessor.tokenizer.get_vocabulary() == VOCABULARY
        return
    with pytest.raises(ValueError, match=Path(file).name):
        DietBertTextClassifier.from_preset(str(folder))


@pytest.mark.any_backend
@pytest.mark.parametrize("file", ["task.json", "task.weights.h5"])
def test_new_heads_need_no_saved_one(copied, file):
    folder = copied("classifier")
    (folder / file).unlink()
    assert DietBertTextClassifier.from_preset(str(folder), num_classes=2).num_classes == 2
    for cls in (DietBertTextClassifier, DietBertMaskedLM):
        if (file, cls) != ("task.json", DietBertTextClassifier):  # whose head has no default size
            cls.from_preset(str(folder), load_weights=False)
    if file == "task.weights.h5":
        DietBertMaskedLM.from_preset(str(folder))


@pytest.mark.any_backend
def test_masked_lm_presets_without_a_head_are_refused(copied):
    folder = copied("masked_lm")
    (folder / "task.json").unlink()
    with pytest.raises(ValueError, match=r"has no task\.json"):
        DietBertMaskedLM.from_preset(str(folder))


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("base", "share"),
    [
        (DietBertTextClassifier, 0),
        (DietBertTextClassifier, 0.95),
        (keras_hub.models.TextClassifier, 0.5),
    ],
)
@pytest.mark.parametrize(
    "file", ["config.json", "task.json", "model.weights.h5", "task.weights.h5", "vocabulary.txt"]
)
def test_presets_with_truncated_files_are_refused(copied, base, file, share):
    folder = copied("classifier")
    path = next(folder.rglob(file))
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    if path.suffix == ".json":
        words = f"is damaged: {file}" if base is DietBertTextClassifier else "Expecting|Untermin"
    else:
        words = f"{file}` (is not a complete weights file|is not the vocabulary that was saved)"
    with pytest.raises(ValueError, match=words):
        base.from_preset(str(folder))


@pytest.mark.any_backend
@pytest.mark.parametrize("base", [DietBertTextClassifier, keras_hub.models.TextClassifier])
def test_presets_with_another_vocabulary_are_refused(copied, base):
    folder = copied("classifier")
    with open(folder / "assets/tokenizer/vocabulary.txt", "a") as file:
        file.write("extra\n")
    with pytest.raises(ValueError, match="32 tokens, but 31 tokens were saved"):
        base.from_preset(str(folder))
    # A preset of an earlier version does not say how many tokens it has.
    config = json.loads((folder / "task.json").read_text())
    del config["config"]["preprocessor"]["config"]["tokenizer"]["config"]["vocabulary_size"]
    (folder / "task.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"vocabulary_size=31 and a tokenizer of 32 tokens"):
        base.from_preset(str(folder)).predict(A, verbose=0)
