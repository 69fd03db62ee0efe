"""`DietBertMaskedLM`: its head and loss, `fit` from raw text, presets, XLA."""

from pathlib import Path

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet.models import (
    DietBertBackbone,
    DietBertMaskedLM,
    DietBertMaskedLMPreprocessor,
    DietBertTokenizer,
)
from tests import reference
from tests.helpers import assert_close, to_numpy
from tests.models.tiny import (
    SIZES,
    TEXTS,
    VOCABULARY,
    random_masked_inputs,
    randomize_weights,
    tiny_backbone,
)

BACKEND = keras.backend.backend()
ROOT = Path(__file__).parents[2]


def preprocessor(**arguments):
    defaults = {"sequence_length": 13, "mask_selection_length": 5, "mask_selection_rate": 0.4}
    return DietBertMaskedLMPreprocessor(DietBertTokenizer(VOCABULARY), **{**defaults, **arguments})


def tiny_masked_lm(with_preprocessor=False, **arguments):
    return DietBertMaskedLM(
        tiny_backbone(**arguments), preprocessor() if with_preprocessor else None
    )


# === Head ===


def test_logits_are_those_of_the_equation(rng):
    """`E LayerNorm(gelu(W h + b)) + c` at the masked positions, E being the token embedding."""
    masked_lm = randomize_weights(tiny_masked_lm())
    inputs, _, _ = random_masked_inputs(rng)
    weights = {weight.path: to_numpy(weight) for weight in masked_lm.weights}
    head = {path: value for path, value in weights.items() if path.startswith("mlm_head/")}
    assert {path: value.shape for path, value in head.items()} == {
        "mlm_head/intermediate_dense/kernel": (15, 15),
        "mlm_head/intermediate_dense/bias": (15,),
        "mlm_head/intermediate_layer_norm/gamma": (15,),
        "mlm_head/intermediate_layer_norm/beta": (15,),
        "mlm_head/output_bias": (31,),
    }
    assert len(weights) == len(masked_lm.backbone.weights) + len(head)

    backbone_inputs = {name: inputs[name] for name in masked_lm.backbone.input}
    hidden = to_numpy(masked_lm.backbone(backbone_inputs)["sequence_output"])
    hidden = np.take_along_axis(hidden, inputs["mask_positions"][..., None], axis=1)
    kernel, bias, gamma, beta, output_bias = (
        head[f"mlm_head/{name}"]
        for name in (
            "intermediate_dense/kernel",
            "intermediate_dense/bias",
            "intermediate_layer_norm/gamma",
            "intermediate_layer_norm/beta",
            "output_bias",
        )
    )
    x = reference.gelu_exact(hidden.astype("float64") @ kernel + bias)
    x = reference.layer_norm(x, gamma, beta, epsilon=1e-5)
    token_embedding = to_numpy(masked_lm.backbone.token_embedding.embeddings)
    assert_close(masked_lm(inputs), x @ token_embedding.T.astype("float64") + output_bias)


def test_with_input_encodings_it_is_bert(rng):
    sizes = {**SIZES, "dropout": 0.0}
    bert = keras_hub.models.BertMaskedLM(backbone=keras_hub.models.BertBackbone(**sizes))
    ours = tiny_masked_lm(position_encoding="input", segment_encoding="input")
    randomize_weights(bert)
    assert [w.shape for w in ours.weights] == [w.shape for w in bert.weights]
    ours.set_weights(bert.get_weights())
    assert {name: (x.shape, x.dtype) for name, x in ours.input.items()} == {
        name: (x.shape, x.dtype) for name, x in bert.input.items()
    }
    inputs, _, _ = random_masked_inputs(rng)
    assert_close(ours(inputs), bert(inputs))


@pytest.mark.any_backend
def test_conventions():
    masked_lm = tiny_masked_lm(with_preprocessor=True, dtype="mixed_bfloat16")
    assert masked_lm.backbone_cls is DietBertBackbone
    assert masked_lm.preprocessor_cls is DietBertMaskedLMPreprocessor
    assert masked_lm.output.shape == (None, None, SIZES["vocabulary_size"])
    assert masked_lm.dtype_policy.name == masked_lm.masked_lm_head.dtype_policy.name
    assert masked_lm.dtype_policy.name == "mixed_bfloat16"
    backbone = masked_lm.backbone
    assert not DietBertMaskedLM(backbone, compile=False).compiled
    frozen = DietBertMaskedLM(backbone, name="reader", trainable=False)
    assert frozen.name == "reader"
    assert frozen.trainable_weights == []
    assert DietBertMaskedLM(backbone).preprocessor is None


@pytest.mark.any_backend
def test_unknown_arguments_are_refused():
    with pytest.raises(TypeError, match="num_classes"):
        DietBertMaskedLM(tiny_backbone(), num_classes=2)


# === Loss ===


COMPILATIONS = {
    "constructor": lambda masked_lm: None,
    "compile()": lambda masked_lm: masked_lm.compile(),
    "compile(optimizer)": lambda masked_lm: masked_lm.compile(optimizer="sgd"),
}


@pytest.mark.parametrize("compilation", COMPILATIONS)
def test_default_loss_is_the_mean_over_masked_tokens(rng, compilation):
    masked_lm = randomize_weights(tiny_masked_lm(num_layers=1))
    COMPILATIONS[compilation](masked_lm)
    inputs, labels, weights = random_masked_inputs(rng)
    assert 0 < weights.mean() < 1
    logits = to_numpy(masked_lm(inputs))
    expected = reference.masked_lm_loss(logits, labels, weights)
    results = masked_lm.evaluate(inputs, labels, sample_weight=weights, verbose=0, return_dict=True)
    assert results["loss"] == pytest.approx(expected, rel=1e-5)
    correct = (logits.argmax(-1) == labels) * weights
    accuracy = correct.sum() / weights.sum()
    assert results["sparse_categorical_accuracy"] == pytest.approx(accuracy, abs=1e-6)

    loss = masked_lm.compute_loss(y=labels, y_pred=masked_lm(inputs), sample_weight=weights)
    assert float(to_numpy(loss)) == pytest.approx(expected, rel=1e-5)


def test_a_batch_without_masked_tokens_has_no_loss(rng):
    """The Python preprocessor draws each mask on its own, so there may be none."""
    masked_lm = randomize_weights(tiny_masked_lm(num_layers=1))
    inputs, labels, weights = random_masked_inputs(rng)
    loss = masked_lm.compute_loss(y=labels, y_pred=masked_lm(inputs), sample_weight=0 * weights)
    assert float(to_numpy(loss)) == 0.0


@pytest.mark.any_backend
def test_kerashubs_default_loss_is_another(rng):
    """It divides by the number of slots, fillers included: ours exists for this reason."""
    masked_lm = randomize_weights(tiny_masked_lm(num_layers=1))
    inputs, labels, weights = random_masked_inputs(rng)
    expected = reference.masked_lm_loss(to_numpy(masked_lm(inputs)), labels, weights)
    keras_hub.models.MaskedLM.compile(masked_lm)
    loss = masked_lm.compute_loss(y=labels, y_pred=masked_lm(inputs), sample_weight=weights)
    assert float(to_numpy(loss)) == pytest.approx(expected * weights.mean(), rel=1e-5)


def test_a_loss_and_metrics_of_the_user_are_kept(rng):
    masked_lm = randomize_weights(tiny_masked_lm(num_layers=1))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    masked_lm.compile(loss=loss, weighted_metrics=[])
    inputs, labels, weights = random_masked_inputs(rng)
    expected = reference.masked_lm_loss(to_numpy(masked_lm(inputs)), labels, weights)
    actual = masked_lm.compute_loss(y=labels, y_pred=masked_lm(inputs), sample_weight=weights)
    assert float(to_numpy(actual)) == pytest.approx(expected * weights.sum(), rel=1e-5)
    results = masked_lm.evaluate(inputs, labels, sample_weight=weights, verbose=0, return_dict=True)
    assert set(results) == {"loss"}


# === Training and inference ===


@pytest.mark.any_backend
def test_fit_learns_from_raw_pairs():
    masked_lm = tiny_masked_lm(with_preprocessor=True, num_layers=1)
    masked_lm.compile(optimizer=keras.optimizers.Adam(0.02))
    before = {weight.path: to_numpy(weight) for weight in masked_lm.weights}
    # With two segments, no segment scores are without a gradient.
    pairs = (TEXTS * 4, TEXTS[::-1] * 4)
    history = masked_lm.fit(pairs, batch_size=10, epochs=6, verbose=0).history
    # Before training all 31 tokens are alike.
    assert history["loss"][0] == pytest.approx(np.log(31), abs=0.2)
    assert history["loss"][-1] < history["loss"][0] - 0.1
    assert history["sparse_categorical_accuracy"][-1] > 1.5 / 31
    for weight in masked_lm.weights:
        changed = not np.array_equal(to_numpy(weight), before[weight.path])
        in_use = not weight.path.startswith("pooled_dense/")
        assert changed == in_use, weight.path


@pytest.mark.usefixtures("compiled_steps")
def test_fit_overfits_ready_arrays(rng):
    """Without a preprocessor, at the maximum length, compiled by XLA on TensorFlow and JAX."""
    masked_lm = tiny_masked_lm(num_layers=1, position_encoding="diet_rel")
    randomize_weights(masked_lm)
    masked_lm.compile(optimizer=keras.optimizers.SGD(0.05), jit_compile=BACKEND != "torch")
    assert masked_lm.jit_compile == (BACKEND != "torch")
    inputs, labels, weights = random_masked_inputs(rng, length=SIZES["max_sequence_length"])
    history = masked_lm.fit(inputs, labels, sample_weight=weights, epochs=40, verbose=0).history
    assert history["loss"][-1] < 0.3 * history["loss"][0]


def test_predict_and_evaluate_raw_text():
    masked_lm = randomize_weights(tiny_masked_lm(with_preprocessor=True, num_layers=1))
    # All tokens masked, so that nothing is random.
    masked_lm.preprocessor = preprocessor(
        mask_selection_rate=1.0,
        mask_selection_length=13,
        mask_token_rate=1.0,
        random_token_rate=0.0,
    )
    x, y, sample_weight = keras.tree.map_structure(to_numpy, masked_lm.preprocessor(TEXTS))
    logits = masked_lm.predict(TEXTS, batch_size=5, verbose=0)
    loss, _ = masked_lm.evaluate(TEXTS, batch_size=5, verbose=0)
    assert loss == pytest.approx(reference.masked_lm_loss(logits, y, sample_weight), rel=1e-5)
    masked_lm.preprocessor = None
    assert logits.shape == (5, 13, 31)
    assert_close(masked_lm.predict(x, batch_size=5, verbose=0), logits)


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.skipif(BACKEND == "torch", reason="XLA compiles for TensorFlow and JAX")
@pytest.mark.parametrize("position_encoding", ["diet_abs", "input"])
def test_xla_compiles_inference(rng, position_encoding):
    """With static shapes; a training step is compiled in `test_fit_overfits_ready_arrays`."""
    masked_lm = randomize_weights(tiny_masked_lm(num_layers=1, position_encoding=position_encoding))
    masked_lm.compile(jit_compile=True)
    assert masked_lm.jit_compile
    inputs, _, _ = random_masked_inputs(rng)
    assert_close(masked_lm.predict(inputs, verbose=0), masked_lm(inputs))


# === Files and presets ===


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """A model with a preprocessor, and the folder that it was saved to as a preset."""
    keras.utils.set_random_seed(13)
    backbone = DietBertBackbone(**SIZES, dropout=0.3, rank=7, sharing="head-wise")
    masked_lm = randomize_weights(DietBertMaskedLM(backbone, preprocessor()))
    folder = tmp_path_factory.mktemp("preset")
    masked_lm.save_to_preset(str(folder))
    return masked_lm, str(folder)


@pytest.mark.any_backend
def test_preset_files(preset):
    files = {str(file.relative_to(preset[1])) for file in Path(preset[1]).rglob("*.*")}
    assert files == {
        "assets/tokenizer/vocabulary.txt",
        "config.json",
        "metadata.json",
        "model.weights.h5",
        "preprocessor.json",
        "task.json",
        "task.weights.h5",
        "tokenizer.json",
    }


@pytest.mark.any_backend
@pytest.mark.parametrize("base", [DietBertMaskedLM, keras_hub.models.MaskedLM])
def test_from_preset_restores_the_model(rng, preset, base):
    masked_lm, folder = preset
    loaded = base.from_preset(folder)
    assert type(loaded) is DietBertMaskedLM
    assert type(loaded.backbone) is DietBertBackbone
    assert type(loaded.preprocessor) is DietBertMaskedLMPreprocessor
    assert type(loaded.preprocessor.tokenizer) is DietBertTokenizer
    assert loaded.backbone.get_config() == masked_lm.backbone.get_config()
    assert loaded.preprocessor.get_config() == masked_lm.preprocessor.get_config()
    assert loaded.preprocessor.tokenizer.get_vocabulary() == VOCABULARY
    inputs, _, _ = random_masked_inputs(rng)
    assert_close(loaded(inputs), masked_lm(inputs), 1e-6)


@pytest.mark.any_backend
def test_from_preset_without_weights(rng, preset):
    masked_lm, folder = preset
    loaded = DietBertMaskedLM.from_preset(folder, load_weights=False)
    assert loaded.backbone.get_config() == masked_lm.backbone.get_config()
    for weight, saved in zip(loaded.weights, masked_lm.weights, strict=True):
        assert weight.shape == saved.shape
        assert not np.array_equal(to_numpy(weight), to_numpy(saved))


@pytest.mark.usefixtures("compiled_steps")
def test_from_preset_in_another_dtype(rng, preset):
    masked_lm, folder = preset
    loaded = DietBertMaskedLM.from_preset(folder, dtype="bfloat16")
    assert loaded.backbone.dtype_policy.name == "bfloat16"
    assert {weight.dtype for weight in loaded.weights} == {"bfloat16"}
    inputs, _, _ = random_masked_inputs(rng)
    assert loaded.output.dtype == "bfloat16"
    loaded.preprocessor = None
    logits = np.asarray(loaded.predict(inputs, verbose=0), "float32")
    error = np.abs(logits - to_numpy(masked_lm(inputs)))
    assert error.max() < 0.3
    assert error.mean() < 0.03


@pytest.mark.any_backend
def test_from_preset_with_arguments(preset):
    assert DietBertBackbone.from_preset(preset[1], dropout=0.1).dropout == 0.1
    without = DietBertMaskedLM.from_preset(preset[1], preprocessor=None, load_weights=False)
    assert without.preprocessor is None
    for base in (DietBertBackbone, DietBertMaskedLM):
        with pytest.raises(TypeError, match="hidden_size"):
            base.from_preset(preset[1], hidden_size=20)


def test_keras_files(rng, preset, tmp_path):
    masked_lm, _ = preset
    masked_lm.save(tmp_path / "masked_lm.keras")
    loaded = keras.saving.load_model(tmp_path / "masked_lm.keras")
    assert type(loaded) is DietBertMaskedLM
    assert loaded.preprocessor.tokenizer.get_vocabulary() == VOCABULARY
    inputs, _, _ = random_masked_inputs(rng)
    assert_close(loaded(inputs), masked_lm(inputs), 1e-6)
    masked_lm.save_weights(tmp_path / "masked_lm.weights.h5")
    other = DietBertMaskedLM(DietBertBackbone.from_config(masked_lm.backbone.get_config()))
    other.load_weights(tmp_path / "masked_lm.weights.h5")
    assert_close(other(inputs), masked_lm(inputs), 1e-6)
