"""What every model keeps: in files, with LoRA, quantized, in half precision, and frozen.

A row of `SPECIFICATIONS` is a task with an encoding. A new task is one more row.
`tests/cross_backend` loads the files of each backend on the others.
"""

import concurrent.futures
import gc
import json

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet._compat import flatten_layers
from keras_diet.layers import DietEncoder, cache_positions
from keras_diet.samplers import BeamSearchSampler
from tests import reference
from tests.helpers import assert_all_close, assert_close, every_backend, once, to_numpy
from tests.models import tasks
from tests.models.diet_transformer import tiny as translation
from tests.models.diet_transformer.pairs import SOURCES, TARGETS
from tests.models.question_answering import CONTEXTS, QUESTIONS, tiny_question_answerer
from tests.models.tiny import TEXTS, random_inputs, randomize_weights, tiny_backbone

any_backend = pytest.mark.any_backend
pytestmark = any_backend
HUB = keras_hub.models


def labels_of(task, rng):
    """Inputs and labels of a task."""
    if task == "translator":
        return translation.random_inputs(rng), rng.integers(0, 31, (2, 7))
    if task == "question_answerer":
        return random_inputs(rng), {"start": np.array([2, 7]), "end": np.array([3, 9])}
    return tasks.random_data(task, rng)[:2]


class Specification:
    def __init__(self, task, base, has_head=True, **backbone):
        self.task, self.base, self.has_head, self.backbone = task, base, has_head, backbone

    def make(self, with_preprocessor=False, **changes):
        arguments = {**self.backbone, **changes}
        if self.task == "translator" and with_preprocessor:
            model = translation.tiny_translator(translation.proto(), arguments)
        elif self.task == "translator":
            model = translation.tiny_task(num_layers=1, **arguments)
        elif self.task == "question_answerer":
            model = tiny_question_answerer(with_preprocessor, **arguments)
        else:
            model = tasks.tiny_task(self.task, with_preprocessor=with_preprocessor, **arguments)
        return randomize_weights(model)

    def loaders(self, model):
        """Ways to load a preset: by the class, and by KerasHub's base class."""
        return [type(model), *([] if self.base is None else [self.base])]


SPECIFICATIONS = {
    "masked_lm": Specification("masked_lm", HUB.MaskedLM, position_encoding="diet_abs", rank=7),
    "classifier": Specification("classifier", HUB.TextClassifier, position_encoding="tupe_rel"),
    "embedder": Specification(
        "embedder", HUB.TextEmbedder, False, position_encoding="t5", segment_encoding="input"
    ),
    "token_classifier": Specification("token_classifier", None, position_encoding="shaw"),
    "question_answerer": Specification(
        "question_answerer", None, position_encoding="diet_rel", sharing="head-wise"
    ),
    "translator": Specification(
        "translator", HUB.Seq2SeqLM, False, position_encoding="diet_abs_input", rank=7
    ),
}
every_model = pytest.mark.parametrize("name", SPECIFICATIONS)


def predicted(model, inputs):
    """All outputs of a model in one array, by a compiled step where steps are compiled."""
    return flat(model.predict(inputs, verbose=0))


def flat(outputs):
    outputs = [np.float32(to_numpy(output)) for output in keras.tree.flatten(outputs)]
    array = np.concatenate([output.reshape(-1) for output in outputs])
    # Logits of places that cannot be answers.
    return np.where(array < -1e4, 0, array)


def quantized(model):
    layers = [layer for layer in model._flatten_layers() if layer.quantization_mode]
    return {layer.path: (layer.quantization_mode, layer.dtype_policy.name) for layer in layers}


def adapters(model):
    return {weight.path: weight for weight in model.weights if "lora_kernel" in weight.path}


def randomize_adapters(model, rng):
    for weight in adapters(model).values():
        weight.assign(rng.normal(scale=0.3, size=weight.shape))


def loaded_from_files(specification, model, folder):
    """The model from a preset and from a `.keras` file."""
    model.save_to_preset(folder / "preset")
    model.save(folder / "model.keras")
    for cls in specification.loaders(model):
        yield cls.from_preset(str(folder / "preset"))
    yield keras.saving.load_model(folder / "model.keras")


def head_of(name):
    return tasks.CLASSES[name][2] if name in tasks.CLASSES else {}


# === Files ===

# What each task makes of texts.
METHODS = {
    "masked_lm": lambda task: task.fill_mask("the [MASK] fox"),
    "classifier": lambda task: task.classify(TEXTS),
    "embedder": lambda task: to_numpy(task.encode_text(TEXTS)).tolist(),
    "token_classifier": lambda task: task.tag([["sleeping", "cats"], ["."]]),
    "question_answerer": lambda task: task.answer(QUESTIONS, CONTEXTS),
    "translator": lambda task: task.generate(SOURCES[:3], max_length=7),
}
# Arguments of preprocessors that are not the defaults.
OF_PREPROCESSORS = {
    "question_answerer": {"doc_stride": 2},
    "translator": {"length_buckets": (9, 31)},
}


@every_model
def test_files_give_the_model_back(rng, tmp_path, name):
    specification = SPECIFICATIONS[name]
    model = specification.make(with_preprocessor=True)
    of_preprocessor = OF_PREPROCESSORS.get(name, {})
    for argument, value in of_preprocessor.items():
        setattr(model.preprocessor, argument, value)
    sampler = BeamSearchSampler(3, 1.7).get_config()
    if name == "translator":
        model.compile(sampler=BeamSearchSampler.from_config(sampler))
    # All of the backbone is frozen, except for a layer in it.
    model.backbone.trainable = False
    parts = [layer for layer in flatten_layers(model.backbone) if layer.weights]
    parts[len(parts) // 2].trainable = True
    trainable = [weight.path for weight in model.trainable_weights]
    inputs, _ = labels_of(name, rng)
    with_texts = METHODS[name]
    expected, answers = flat(model(inputs)), with_texts(model)
    config = json.dumps(model.get_config())
    for loaded in loaded_from_files(specification, model, tmp_path):
        assert type(loaded) is type(model)
        assert json.dumps(loaded.get_config()) == config
        assert [weight.path for weight in loaded.trainable_weights] == trainable
        for argument, value in of_preprocessor.items():
            assert getattr(loaded.preprocessor, argument) == value
        if name == "translator":
            assert loaded.sampler.get_config() == sampler
        np.testing.assert_allclose(flat(loaded(inputs)), expected, atol=1e-6)
        found = keras.tree.flatten(with_texts(loaded))
        assert found == pytest.approx(keras.tree.flatten(answers), abs=1e-5)
    backbone = HUB.Backbone.from_preset(str(tmp_path / "preset"))
    assert type(backbone) is type(model.backbone)
    assert_all_close(backbone.weights, model.backbone.weights, 0)


@every_model
def test_what_is_frozen_stays_frozen(tmp_path, name):
    model = SPECIFICATIONS[name].make()
    model.backbone.token_embedding.trainable = False
    # Heads that do not read the pooler do not train it.
    num_unused = 0 if name in ("classifier", "translator") else 2
    assert len(model.trainable_weights) == len(model.weights) - 1 - num_unused
    arguments = {"compile": False, "name": "reader", **head_of(name)}
    model = type(model)(SPECIFICATIONS[name].make(trainable=False).backbone, **arguments)
    assert model.backbone.trainable_weights == []
    assert (model.name, model.compiled, model.preprocessor) == ("reader", False, None)
    copy = type(model).from_config(model.get_config())
    assert copy.get_config() == model.get_config()
    assert copy.backbone.trainable_weights == []
    assert len(copy.trainable_weights) == len(model.trainable_weights)
    frozen = type(model)(SPECIFICATIONS[name].make().backbone, trainable=False, **head_of(name))
    frozen.save(tmp_path / "task.keras")
    assert keras.saving.load_model(tmp_path / "task.keras").trainable_weights == []
    model.save_to_preset(tmp_path)
    for cls in (type(model), type(model.backbone)):
        loaded = cls.from_preset(str(tmp_path), trainable=True)
        num_unused *= cls is type(model)
        assert len(loaded.trainable_weights) == len(loaded.weights) - num_unused
    loaded.token_embedding.trainable = False
    loaded.save_to_preset(tmp_path / "partly")
    assert not cls.from_preset(tmp_path / "partly", trainable=False).trainable_weights


@every_backend
@pytest.mark.filterwarnings("error:Gradients do not exist")
@pytest.mark.parametrize(
    "name", ["embedder", *once("masked_lm", "token_classifier", "question_answerer", "classifier")]
)
def test_a_pooler_that_is_not_read_stays_as_it_is(rng, name):
    """Optimizers would warn, or on JAX apply weight decay to it."""
    model = SPECIFICATIONS[name].make()
    pooler = model.backbone.pooled_dense
    before = to_numpy(pooler.kernel).copy()
    loss = "mse" if name == "embedder" else model.loss
    model.compile(keras.optimizers.AdamW(0.1, weight_decay=0.5), loss)
    model.fit(*labels_of(name, rng), verbose=0)
    is_changed = np.any(to_numpy(pooler.kernel) != before)
    assert is_changed == (name == "classifier")
    assert pooler.trainable
    variables = model.trainable_variables + model.non_trainable_variables
    assert {id(each) for each in variables} == {id(each) for each in model.variables}
    assert len(variables) == len(model.variables)


@pytest.mark.parametrize("name", ["masked_lm", "question_answerer", "translator"])
def test_training_goes_on_from_keras_files(rng, tmp_path, name):
    model = SPECIFICATIONS[name].make()
    model.backbone.token_embedding.trainable = False
    model.compile(keras.optimizers.AdamW(0.01))
    inputs, labels = labels_of(name, rng)
    model.fit(inputs, labels, shuffle=False, verbose=0)
    model.save(tmp_path / "task.keras")
    loaded = keras.saving.load_model(tmp_path / "task.keras")
    assert type(loaded.loss) is type(model.loss)
    assert_all_close(loaded.optimizer.variables, model.optimizer.variables, 0)
    for each in (model, loaded):
        each.fit(inputs, labels, shuffle=False, verbose=0)
        assert int(each.optimizer.iterations) == 2
    assert_all_close(loaded.weights, model.weights, 1e-6)


# === Half precision ===


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("masked_lm", "bfloat16"),
        ("classifier", "mixed_bfloat16"),
        ("embedder", "mixed_float16"),
        ("token_classifier", "float16"),
        ("question_answerer", "float16"),
        ("translator", "mixed_bfloat16"),
    ],
)
def test_half_precision(rng, tmp_path, name, policy):
    specification = SPECIFICATIONS[name]
    exact, half = specification.make(), specification.make(dtype=policy)
    half.set_weights(exact.get_weights())
    inputs, labels = labels_of(name, rng)
    expected = predicted(exact, inputs)
    outputs = predicted(half, inputs)
    error = np.abs(outputs - expected).max() / np.abs(expected).max()
    assert 1e-6 < error < 0.1
    dtypes = keras.dtype_policies.get(policy)
    for layer in half._flatten_layers():
        # Softmax is computed in float32, and inputs are integers.
        if not isinstance(layer, keras.layers.Softmax | keras.layers.InputLayer):
            assert layer.compute_dtype == dtypes.compute_dtype, layer.path
            assert layer.variable_dtype == dtypes.variable_dtype, layer.path
    assert {weight.dtype for weight in half.weights} == {dtypes.variable_dtype}
    # Logits of places that cannot be answers need a large range.
    dtype = "float32" if name == "question_answerer" else half.compute_dtype
    assert {x.dtype for x in keras.tree.flatten(half.output)} == {dtype}
    # KerasHub loads other float policies with the global policy.
    saved = policy if policy.startswith("mixed") else "float32"
    half.save_to_preset(tmp_path)
    for cls in specification.loaders(half):
        loaded = cls.from_preset(str(tmp_path))
        assert loaded.dtype_policy.name == loaded.backbone.dtype_policy.name == saved
    again = type(half).from_preset(tmp_path, dtype=policy)
    np.testing.assert_allclose(predicted(again, inputs), outputs, atol=1e-2)
    assert type(half).from_preset(tmp_path, dtype="float32").dtype_policy.name == "float32"
    assert type(half.backbone).from_preset(tmp_path).dtype_policy.name == saved
    half.save(tmp_path / "half.keras")
    assert keras.saving.load_model(tmp_path / "half.keras").backbone.dtype_policy.name == policy
    if name != "embedder":
        half.compile("sgd")
        losses = half.fit(inputs, labels, verbose=0).history["loss"]
        assert np.isfinite(losses).all()


# === LoRA ===


@every_model
def test_lora_trains_adapters_and_the_head_only(rng, name):
    specification = SPECIFICATIONS[name]
    model = specification.make()
    inputs, labels = labels_of(name, rng)
    before = predicted(model, inputs)
    model.backbone.enable_lora(rank=2)
    np.testing.assert_allclose(predicted(model, inputs), before, atol=1e-6)
    assert {path.split("/")[-2] for path in adapters(model)} == {"query", "value"}
    head = {id(w) for w in model.weights} - {id(w) for w in model.backbone.weights}
    old = {weight.path: to_numpy(weight).copy() for weight in model.weights}
    model.compile("sgd", "mse" if name == "embedder" else model.loss)
    for _ in range(2):  # The first step leaves A where it is, since B is zero.
        model.fit(inputs, labels, verbose=0)
    changed = {w.path for w in model.weights if np.any(to_numpy(w) != old[w.path])}
    heads = {weight.path for weight in model.weights if id(weight) in head and weight.trainable}
    assert changed == set(adapters(model)) | heads
    assert bool(heads) == specification.has_head


@pytest.mark.parametrize(
    ("name", "enabled_before"), [("masked_lm", False), ("classifier", True), ("translator", True)]
)
def test_lora_files_bring_their_layers(rng, tmp_path, name, enabled_before):
    specification = SPECIFICATIONS[name]
    names = ["query", "key", "feedforward_output_dense"]
    model, other = specification.make(), specification.make()
    trainable = [weight.path for weight in model.trainable_weights]
    model.backbone.enable_lora(3, target_layer_names=names)
    randomize_adapters(model, rng)
    model.backbone.save_lora_weights(tmp_path / "task.lora.h5")
    if enabled_before:
        other.backbone.enable_lora(3, target_layer_names=names)
    other.backbone.load_lora_weights(tmp_path / "task.lora.h5")
    inputs, _ = labels_of(name, rng)
    expected = predicted(model, inputs)
    assert np.abs(predicted(specification.make(), inputs) - expected).max() > 1e-2
    np.testing.assert_allclose(predicted(other, inputs), expected, atol=1e-5)
    # Files of models hold the sum of kernels and adapters. What LoRA froze is trainable again.
    for loaded in loaded_from_files(specification, model, tmp_path):
        assert adapters(loaded) == {}
        assert [weight.path for weight in loaded.trainable_weights] == trainable
        np.testing.assert_allclose(predicted(loaded, inputs), expected, atol=1e-5)


# === Quantization ===

# Largest difference of quantized outputs, relative to the largest of the float model.
ERRORS = {"int8": 0.1, "float8": 0.3, "int4": 0.9}


@every_backend
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("masked_lm", "int8"),
        *once(
            ("classifier", "float8"),
            ("classifier", keras.quantizers.Int4QuantizationConfig(block_size=8)),
            ("embedder", "int8"),
            ("token_classifier", "int8"),
            ("question_answerer", "int4"),
            ("translator", "int8"),
        ),
    ],
)
def test_quantized_models_stay_close_and_are_loaded_as_saved(rng, tmp_path, name, mode):
    specification = SPECIFICATIONS[name]
    model = specification.make()
    inputs, _ = labels_of(name, rng)
    expected = predicted(model, inputs)
    config = None if isinstance(mode, str) else mode
    mode = mode if config is None else config.mode
    model.quantize(mode, config=config)
    outputs = predicted(model, inputs)
    error = np.abs(outputs - expected).max() / np.abs(expected).max()
    assert 1e-6 < error < ERRORS[mode]
    layers = quantized(model)
    dense = {path for path in layers if "token_embedding" not in path}
    assert dense
    assert (mode == "float8") != (dense < set(layers))
    for loaded in loaded_from_files(specification, model, tmp_path):
        assert quantized(loaded) == layers
        np.testing.assert_allclose(predicted(loaded, inputs), outputs, atol=1e-5)
    # A backbone, by KerasHub's class too, which is saved again.
    backbone = HUB.Backbone.from_preset(str(tmp_path / "preset"))
    backbone.save_to_preset(tmp_path / "again")
    again = type(model.backbone).from_preset(tmp_path / "again")
    for other in (backbone, again):
        assert quantized(other) == quantized(model.backbone)
        assert_all_close(other.weights, model.backbone.weights, 0)


def test_other_layers_of_quantized_models_keep_their_policy(tmp_path):
    model = SPECIFICATIONS["classifier"].make(dtype="mixed_bfloat16")
    model.quantize("int8")
    model.save_to_preset(tmp_path)
    loaded = type(model).from_preset(tmp_path)
    for one, other in zip(loaded._flatten_layers(), model._flatten_layers(), strict=True):
        assert one.dtype_policy.name == other.dtype_policy.name
    # Other tasks start from it, and its kernels are read in another precision too.
    masked_lm = HUB.MaskedLM.from_preset(str(tmp_path), preprocessor=None)
    assert quantized(masked_lm).keys() == quantized(model).keys()
    half = type(model).from_preset(tmp_path, dtype="bfloat16")
    assert half.backbone.pooled_dense.dtype_policy.name == "int8_from_bfloat16"


# === Layers that change after the steps were compiled ===


@every_backend
@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize(
    "change",
    [
        *("lora", "compile"),
        *(pytest.param(each, marks=any_backend("tensorflow")) for each in ("backbone", "task")),
    ],
)
def test_every_task_of_a_backbone_compiles_again(rng, change):
    model = SPECIFICATIONS["classifier"].make()
    other = type(model)(model.backbone, **head_of("classifier"))
    other.set_weights(model.get_weights())
    inputs, _ = labels_of("classifier", rng)
    before = predicted(model, inputs)
    np.testing.assert_allclose(predicted(other, inputs), before, atol=1e-6)
    if change == "lora":
        model.backbone.enable_lora(rank=2)
        randomize_adapters(model, rng)
    elif change == "compile":
        model.backbone.pooled_dense.activation = keras.activations.relu
        model.compile()
        other.compile()
    else:
        (model.backbone if change == "backbone" else model).quantize("int8")
    # An eager call compiles nothing.
    eager = flat(model(inputs))
    for each in (model, other):
        after = predicted(each, inputs)
        assert np.abs(after - before).max() > 1e-5
        np.testing.assert_allclose(after, eager, rtol=1e-5, atol=1e-5)


# === Calls beside a training, in threads, and again and again ===


def evaluations(model):
    """What Keras computes with its own readers, and batches by themselves."""
    labels = np.array([6, 2, 0, 3, 1])
    # First, because the others give a model on JAX its weights.
    yield np.array(model.test_on_batch(TEXTS, labels)[0])
    yield model.predict(iter([TEXTS[:3], TEXTS[3:]]), verbose=0)
    yield np.array(model.evaluate(TEXTS, labels, batch_size=2, verbose=0)[0])
    yield model.predict_on_batch(TEXTS)
    yield model.backbone.predict(random_inputs(np.random.default_rng(5)), verbose=0)


def translations(model):
    pairs = {"encoder_text": SOURCES[3:4], "decoder_text": TARGETS[3:4]}
    return [METHODS["translator"](model), flat(model.predict(pairs, verbose=0)).tolist()]


CALLS = {name: (name, method) for name, method in METHODS.items()}
CALLS |= {
    "evaluations": ("classifier", lambda model: flat(list(evaluations(model))).tolist()),
    "translator": ("translator", translations),
}


class Caller(keras.callbacks.Callback):
    """Calls a function, but not with the `model` of Keras's callbacks, which has all weights."""

    def __init__(self, function):
        super().__init__()
        self.function, self.results = function, []

    def on_train_batch_end(self, batch, logs=None):
        self.results.append(keras.tree.flatten(self.function()))


OTHERS = once("classifier", "masked_lm", "embedder", "token_classifier", "question_answerer")
# JAX takes the weights out of a model while it trains.
OTHERS += [pytest.param("translator", marks=any_backend("jax"))]


EVALUATIONS = pytest.param(
    "evaluations",
    marks=pytest.mark.skipif(
        keras.backend.backend() == "tensorflow", reason="shares neither weights nor a generator"
    ),
)


@every_backend
@pytest.mark.parametrize("name", [EVALUATIONS, *OTHERS])
def test_calls_in_callbacks_leave_the_training_as_it_is(rng, name):
    """Also with dropout, whose generator PyTorch shares with its readers."""
    task, call = CALLS[name]
    inputs, labels = labels_of(task, rng)

    def trained(called):
        keras.utils.set_random_seed(7)
        model = SPECIFICATIONS[task].make(with_preprocessor=True, dropout=0.3)
        model.compile(keras.optimizers.SGD(0.1), "mse" if task == "embedder" else "auto")
        caller = Caller(lambda: call(model))
        validation = (inputs, labels) if called else None
        options = {"batch_size": 1, "epochs": 2, "callbacks": [caller] if called else []}
        keras.Model.fit(model, inputs, labels, validation_data=validation, verbose=0, **options)
        return model, caller.results

    model, results = trained(True)
    assert results[0] != results[-1] == pytest.approx(keras.tree.flatten(call(model)), abs=1e-6)
    assert len(results) == 4
    assert_all_close(model.get_weights(), trained(False)[0].get_weights(), 0)


@every_backend
@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize("name", ["classifier", *once("translator")])
def test_threads_get_the_same_results(name):
    task, call = CALLS[name]
    model = SPECIFICATIONS[task].make(with_preprocessor=True)
    expected = keras.tree.flatten(call(model))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: keras.tree.flatten(call(model)), range(40)))
    for found in (*results, keras.tree.flatten(call(model))):
        assert found == pytest.approx(expected, abs=1e-6)


@any_backend("tensorflow")
@pytest.mark.parametrize("name", ["classifier", "embedder"])
def test_calls_keep_no_objects(name):
    """A reader of `tf.data` would keep 46 objects a call."""
    model = SPECIFICATIONS[name].make(with_preprocessor=True)
    for _ in range(2):
        METHODS[name](model)
    counts = []
    for _ in range(2):
        gc.collect()
        counts.append(len(gc.get_objects()))
        METHODS[name](model)
        METHODS[name](model)
    assert counts[1] - counts[0] < 10


# === What is refused ===


@every_model
def test_backbones_of_others_are_refused(name):
    """Also those whose outputs have other names."""
    others = [
        cls(31, 1, 3, 15, 23, max_sequence_length=13)
        for cls in (HUB.BertBackbone, HUB.RobertaBackbone)
    ]
    task = type(SPECIFICATIONS[name].make())
    for backbone in others:
        received = f"Received: keras_hub.{type(backbone).__name__}.*from_bert"
        with pytest.raises(ValueError, match=received):
            task(backbone, **head_of(name))


def test_positions_of_a_translator_are_not_cached():
    for model in (translation.tiny_task(num_layers=1), translation.tiny_backbone(num_layers=1)):
        with pytest.raises(ValueError, match=f"copies encoders.*{type(model).__name__}"):
            cache_positions(model)


def test_positions_are_cached_beside_operations(rng):
    inputs = keras.Input((7, 6))
    encoder = DietEncoder(1, 2, 5, position_encoding="diet_rel", max_sequence_length=7)
    outputs = keras.layers.Dense(3)(encoder(2.0 * inputs) - 1.0)
    model = randomize_weights(keras.Model(inputs, outputs))
    x = rng.normal(size=(2, 7, 6)).astype("float32")
    assert_close(cache_positions(model)(x), model(x))


def test_adapters_of_other_layers_are_refused(tmp_path):
    backbone = tiny_backbone(num_layers=1)
    for rank, names, message in (
        (0, None, "`rank` must be a positive integer"),
        (2, ["queries"], "`target_layer_names` must be one of .*'query'"),
        (2, ["query", "token_embedding"], "`target_layer_names` must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            backbone.enable_lora(rank, names)
    assert backbone.trainable_weights == backbone.weights
    assert adapters(backbone) == {}
    model, other = (SPECIFICATIONS["masked_lm"].make().backbone for _ in range(2))
    model.enable_lora(2, ["query", "key"])
    model.save_lora_weights(tmp_path / "task.lora.h5")
    other.enable_lora(2, ["query"])
    with pytest.raises(ValueError, match="adapters in other layers than the backbone has"):
        other.load_lora_weights(tmp_path / "task.lora.h5")


def test_filters_choose_the_quantized_layers():
    model = SPECIFICATIONS["classifier"].make()
    model.quantize("int8", filters="feedforward|logits")
    names = {path.rsplit("/")[-1] for path in quantized(model)}
    assert names == {"feedforward_intermediate_dense", "feedforward_output_dense"}


def test_torch_parameters_are_the_quantized_ones():
    model = SPECIFICATIONS["classifier"].make()
    model.build(model.input_shape)
    model.quantize("int8")
    parameters = {id(parameter) for parameter in model.parameters()}
    assert parameters == {id(variable.value) for variable in model.variables}


# === Loss and accuracy of several batches ===


def five_rows(task, rng):
    """Inputs, labels and the labels that count: another number in each batch of 2 or 3 rows."""
    if task == "translator":
        inputs = translation.random_inputs(rng, 5)
        return inputs, rng.integers(0, 31, (5, 7)), inputs["decoder_padding_mask"]
    inputs = random_inputs(rng, 5)
    if task == "masked_lm":
        inputs["mask_positions"] = rng.integers(0, 11, (5, 4))
        return inputs, rng.integers(0, 31, (5, 4)), np.tri(5, 4, dtype="int32")
    return inputs, rng.integers(0, 5, (5, 11)), inputs["padding_mask"]


@every_backend
@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize("name", ["masked_lm", *once("token_classifier", "translator")])
def test_loss_and_accuracy_are_means_over_labels(rng, name):
    """Over several batches, Keras weighs the losses by the numbers of examples."""
    model = SPECIFICATIONS[name].make()
    if name == "token_classifier":
        model.output_dropout.rate = 0.0
    inputs, labels, counts = five_rows(name, rng)
    weights = counts * rng.uniform(0.5, 2.0, counts.shape)
    model.compile(keras.optimizers.SGD(0.0))
    logits = to_numpy(model(inputs))
    nothing = model.compute_loss(y=labels, y_pred=model(inputs), sample_weight=0 * weights)
    assert float(to_numpy(nothing)) == 0.0
    model.weights[0].regularizer = keras.regularizers.L2(0.01)
    penalty = 0.01 * (to_numpy(model.weights[0]) ** 2).sum()
    expected = {
        "loss": reference.masked_lm_loss(logits, labels, weights) + penalty,
        "sparse_categorical_accuracy": ((logits.argmax(-1) == labels) * weights).sum()
        / weights.sum(),
    }
    data = inputs, labels, weights
    history = model.fit(
        inputs, labels, 5, sample_weight=weights, validation_data=data, verbose=0
    ).history
    for metric, value in expected.items():
        assert history[metric] + history[f"val_{metric}"] == pytest.approx([value] * 2, rel=1e-5)
    _, accuracy = model.evaluate(inputs, labels, 2, sample_weight=weights, verbose=0)
    assert accuracy == pytest.approx(expected["sparse_categorical_accuracy"], rel=1e-5)
    model.compile_from_config(model.get_compile_config())
    assert model.test_on_batch(*data, return_dict=True) == pytest.approx(expected, rel=1e-5)
