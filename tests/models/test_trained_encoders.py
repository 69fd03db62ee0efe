"""Trained encoders of Hugging Face in a `DietBertBackbone`: tiny random models of each type."""

import itertools
import json
import re
import warnings

import keras
import numpy as np
import pytest
import tokenizers
from safetensors.numpy import load_file, save_file

from keras_diet.models import (
    DietBertBackbone,
    DietBertMaskedLM,
    DietBertQuestionAnswerer,
    DietBertTextClassifier,
    DietBertTextEmbedder,
    DietBertTextEmbedderPreprocessor,
    DietBertTextReranker,
    DietBertTokenClassifier,
    DietBertTokenizer,
)
from tests.helpers import (
    assert_all_close,
    assert_close,
    every_backend,
    gradients,
    once,
    to_numpy,
    weighted_sum,
)
from tests.models.tasks import tiny_preprocessor
from tests.models.tiny import AT_INPUT, TEXTS, VOCABULARY, randomize_weights, tiny_backbone
from tests.models.tiny import random_inputs as tiny_inputs
from tests.models.tiny_encoders import (
    DEBERTA,
    DISTILBERT,
    ENCODERS,
    LENGTH,
    SIZES,
    T5_SIZES,
    VOCABULARY_SIZE,
    make,
    outputs,
    random_inputs,
)

pytestmark = [
    pytest.mark.any_backend,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*has no pooler:UserWarning"),
]
# RoBERTa with other names.
RENAMED = ("xlm-roberta", "camembert", "data2vec-text")
# `transformers` has no code for it.
JINA = ("jina_bert", "jina_bert-reglu")


def states(model, inputs):
    """The last hidden states of tokens, of a backbone or of a model of `transformers`."""
    if isinstance(model, DietBertBackbone):
        found = to_numpy(model(inputs)["sequence_output"])
    else:
        found = outputs(model, inputs).last_hidden_state.detach().numpy()
    return found[inputs["padding_mask"].astype(bool)]


def assert_same_states(backbone, model, tolerance=2e-5):
    inputs = random_inputs(np.random.default_rng(11), 1, model.config.pad_token_id)
    assert_close(states(backbone, inputs), states(model, inputs), tolerance)


# One of each mechanism: layers, positions, embeddings and networks.
ON_EACH_BACKEND = (
    *("albert", "deberta", "deberta-v2", "esm", "electra", "gte"),
    *("jina_bert", "modernbert", "mpnet", "roformer", "t5"),
)


@every_backend
@pytest.mark.parametrize(
    "model_type",
    [*ON_EACH_BACKEND, *once(*(each for each in ENCODERS if each not in ON_EACH_BACKEND))],
)
def test_outputs_are_those_of_transformers(model_type, rng):
    model = make(model_type)
    backbone = DietBertBackbone.from_hugging_face(model)
    has_segments = backbone.segment_encoding == "input"
    num_segments = backbone.num_segments if has_segments else 1
    inputs = random_inputs(rng, num_segments, model.config.pad_token_id)
    # A padding token in a text is a token, but RoBERTa does not count it.
    inputs["token_ids"][:, 5] = model.config.pad_token_id
    if backbone.dropped_token is not None:
        inputs["token_ids"][:, 6:8] = backbone.dropped_token
    expected = states(model, inputs)
    assert expected.std() > 0.3
    assert_close(states(backbone, inputs), expected, 2e-5)
    pooled = outputs(model, inputs).get("pooler_output")
    if pooled is not None:
        # The first place of the last text is padding.
        found = to_numpy(backbone(inputs)["pooled_output"])[:2]
        assert_close(found, pooled.detach().numpy()[:2], 2e-5)


def test_shared_layers_are_saved_once(rng, tmp_path):
    backbone = DietBertBackbone.from_hugging_face(make("albert"), dropout=0.0)
    blocks = backbone.encoder.transformer_layers
    assert len(blocks) == 3
    assert len({id(block) for block in blocks}) == 1
    assert len({id(weight) for weight in backbone.weights}) == len(backbone.weights)
    backbone.save(tmp_path / "model.keras")
    back = keras.saving.load_model(tmp_path / "model.keras")
    inputs = random_inputs(rng, 3, 3)
    expected = to_numpy(backbone(inputs)["sequence_output"])
    assert_close(back(inputs)["sequence_output"], expected, 1e-6)


def test_distances_of_deberta_share_rows(rng):
    """Tokens further away than 128 share vectors by the logarithm of their distance."""
    # -1 means `max_position_embeddings`, as in the trained models.
    model = make("deberta-v2", max_position_embeddings=320, max_relative_positions=-1)
    ids = rng.integers(4, VOCABULARY_SIZE, size=(2, 310))
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids), "segment_ids": 0 * ids}
    backbone = DietBertBackbone.from_hugging_face(model)
    assert_close(states(backbone, inputs), states(model, inputs), 5e-5)


@pytest.mark.parametrize("model_type", ["deberta", "deberta-v2"])
def test_positions_of_deberta_become_those_of_diet(model_type):
    """If queries and keys of all tokens are equal, the scores depend on positions only."""
    import torch

    model = make(model_type, num_hidden_layers=1)
    attention = model.encoder.layer[0].attention.self
    with torch.no_grad():
        # The first half of the states is the same for all tokens, and attention reads that half.
        model.embeddings.LayerNorm.weight[:12] = 0
        if model_type == "deberta":
            # Of each head, 8 rows for the query, the key and the value.
            attention.in_proj.weight.view(3, 3, 8, 24)[:, :2, :, 12:] = 0
        else:
            attention.query_proj.weight[:, 12:] = 0
            attention.key_proj.weight[:, 12:] = 0
    backbone = DietBertBackbone.from_bert(model, "diet_abs", rank=LENGTH + 4, dropout=0.0)
    assert_same_states(backbone, model, 1e-4)


@every_backend
@pytest.mark.parametrize("model_type", ["t5", *once(*ON_EACH_BACKEND[:-1], "deberta", "gte")])
def test_gradients_are_those_of_transformers(model_type, rng):
    import torch

    model = make(model_type)
    backbone = DietBertBackbone.from_hugging_face(model, dropout=0.0)
    inputs = random_inputs(rng, 1, model.config.pad_token_id)
    weights = rng.normal(size=(3, LENGTH, 24)).astype("float32")
    mask = inputs["padding_mask"][:, :, None]
    states = outputs(model, inputs).last_hidden_state
    (states * torch.tensor(weights * mask)).sum().backward()
    theirs = [each for each in model.parameters() if each.grad is not None]
    block = backbone.encoder.transformer_layers[1]
    ours = [
        backbone.token_embedding.weights[0],
        block.feedforward_output_dense.kernel,
        block.feedforward_layer_norm.weights[0],
        *(weight for bias in backbone.encoder.position_biases for weight in bias.weights),
    ]
    found = gradients(
        lambda: weighted_sum(backbone(inputs, training=True)["sequence_output"], weights * mask),
        ours,
    )
    for variable, actual in zip(ours, found, strict=True):
        values = to_numpy(variable)
        if variable.name == "kernel":
            values, actual = values.T, actual.T
        expected = next(
            each.grad.numpy() for each in theirs if np.array_equal(each.detach(), values)
        )
        largest = np.abs(expected).max()
        assert largest > 1e-2
        assert_close(actual / largest, expected / largest, 2e-5)


@pytest.mark.parametrize("model_type", ENCODERS)
def test_weights_and_outputs_come_back_to_transformers(model_type, rng, tmp_path):
    model = make(model_type)
    # What was read is written as the type that it was.
    DietBertBackbone.from_hugging_face(model, dropout=0.25).export_to_hugging_face(tmp_path)
    back = type(model).from_pretrained(tmp_path)
    config = back.config.to_dict()
    assert config["model_type"] == model.config.model_type
    assert config["architectures"] == [type(model).__name__]
    roles = ("pad", "bos", "eos", "cls", "sep")
    assert max(config.get(f"{role}_token_id") or 0 for role in roles) < VOCABULARY_SIZE
    # A flag of ESM is no rate.
    names = [name for name in config if "dropout" in name and name != "token_dropout"]
    rates = {name: config[name] for name in names}
    of_heads = {name for name in rates if name.startswith(("classifier", "qa", "seq", "summary"))}
    assert {rates[name] for name in rates.keys() - of_heads} == {0.25}
    actual, expected = back.state_dict(), model.state_dict()
    for name in expected:
        is_missing = name.startswith("pooler") and "pooler.dense.weight" not in actual
        # The head that predicts contacts is not read.
        if not is_missing and not name.startswith("contact_head"):
            np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)
    inputs = random_inputs(rng, 1, model.config.pad_token_id)
    np.testing.assert_array_equal(states(back, inputs), states(model, inputs))


# === Heads ===

HEADS = {
    "ForSequenceClassification": DietBertTextClassifier,
    "ForTokenClassification": DietBertTokenClassifier,
    "ForQuestionAnswering": DietBertQuestionAnswerer,
    "ForMaskedLM": DietBertMaskedLM,
}
# Types without such a head in `transformers`, and heads that the tasks do not have.
WITHOUT = {("bert-generation", head) for head in HEADS}
WITHOUT |= {(each, "ForQuestionAnswering") for each in ("nomic_bert", "gte", "eurobert", "esm")}
WITHOUT |= {(each, "ForMaskedLM") for each in ("t5", "t5-relu", "mt5")}
OTHER_HEADS = {("modernbert", head) for head in HEADS if head != "ForMaskedLM"}
OTHER_HEADS |= {("eurobert", head) for head in ("ForSequenceClassification", "ForMaskedLM")}
OTHER_HEADS |= {
    (each, head)
    for each in ("t5", "t5-relu", "mt5")
    for head in ("ForSequenceClassification", "ForQuestionAnswering")
}
# Its output embeddings have another size.
OTHER_HEADS |= {("rembert", "ForMaskedLM")}
NAMES = ["sad", "glad", "neither"]


def results(output, head):
    """Return the logits of a model of `transformers`."""
    if head == "ForQuestionAnswering":
        logits = [output.start_logits, output.end_logits]
        return np.stack([each.detach().numpy() for each in logits], axis=-1)
    return output.logits.detach().numpy()


def make_with_head(model_type, head):
    labels = {"id2label": dict(enumerate(NAMES))} if "Classification" in head else {}
    return make(model_type, head, tie_word_embeddings=True, **labels)


@pytest.mark.parametrize(("model_type", "head"), sorted(WITHOUT))
def test_heads_that_transformers_does_not_have_are_not_written(model_type, head, tmp_path):
    arguments = {"num_classes": 3} if "Classification" in head else {}
    task = HEADS[head](DietBertBackbone.from_hugging_face(make(model_type)), **arguments)
    with pytest.raises(ValueError, match=r"has another head .*Write the backbone alone"):
        task.export_to_hugging_face(tmp_path)


@pytest.mark.parametrize(("model_type", "head"), sorted(OTHER_HEADS))
def test_heads_that_tasks_do_not_have_are_not_read(model_type, head):
    argument = "`num_classes`" if "Classification" in head else "the backbone"
    with pytest.raises(ValueError, match=f"has another head than the `.*Pass {argument} to"):
        HEADS[head].from_hugging_face(make_with_head(model_type, head))


# Types with the heads of RoBERTa or BERT. One of the heads shows that the names begin as they do.
ALIKE = (*RENAMED, "roberta-prelayernorm", "xlm-roberta-xl", "megatron-bert", "ernie")
ALIKE += ("jina_bert-reglu",)
SAME_HEADS = [(each, head) for each in ENCODERS if each not in ALIKE for head in HEADS]
SAME_HEADS = [each for each in SAME_HEADS if each not in WITHOUT | OTHER_HEADS]
SAME_HEADS += zip(ALIKE, itertools.cycle(HEADS))


@pytest.mark.parametrize(("model_type", "head"), SAME_HEADS)
def test_heads_are_those_of_transformers(model_type, head, rng, tmp_path):
    model = make_with_head(model_type, head)
    with warnings.catch_warnings():
        # A trained head has what it needs.
        warnings.filterwarnings("error", ".*has no pooler")
        task = HEADS[head].from_hugging_face(model)
    num_segments = task.backbone.num_segments if task.backbone.segment_encoding == "input" else 1
    inputs = random_inputs(rng, num_segments, model.config.pad_token_id)
    # A head reads the first place, which must not be padding.
    inputs["padding_mask"][2], inputs["token_ids"][2] = 1, np.arange(5, 5 + LENGTH)
    expected = results(outputs(model, inputs), head)
    assert expected.std() > 0.1
    if head == "ForMaskedLM":
        positions = np.array([[1, 4], [2, 7], [0, 12]])
        actual = task({**inputs, "mask_positions": positions})
        expected = np.take_along_axis(expected, positions[:, :, None], axis=1)
        assert_close(actual, expected, 2e-5)
    elif head == "ForQuestionAnswering":
        actual = task(inputs)
        actual = np.stack([to_numpy(actual[name]) for name in ("start", "end")], axis=-1)
        # The class leaves places out that cannot be answers.
        where = actual > -1e4
        assert where.sum() > 8 or num_segments == 1
        assert_close(actual[where], expected[where], 2e-5)
    else:
        where = inputs["padding_mask"].astype(bool) if head == "ForTokenClassification" else ...
        assert_close(to_numpy(task(inputs))[where], expected[where], 2e-5)
        assert task.class_names == NAMES
        assert task.dropout == task.backbone.dropout
    task.export_to_hugging_face(tmp_path)
    back = type(model).from_pretrained(tmp_path)
    assert back.config.architectures == [type(model).__name__]
    np.testing.assert_array_equal(
        results(outputs(back, inputs), head), results(outputs(model, inputs), head)
    )
    actual, expected = back.state_dict(), model.state_dict()
    assert actual.keys() == expected.keys()
    for name in expected:
        if "contact_head" not in name:
            np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)


def test_heads_of_other_tasks_are_new():
    names = {"id2label": dict(enumerate(NAMES))}
    model = make("distilbert", "ForTokenClassification", **names)
    for task in (DietBertMaskedLM, DietBertQuestionAnswerer, DietBertTextReranker):
        with pytest.warns(UserWarning, match="has no head for this task"):
            task.from_hugging_face(model)
    with pytest.raises(ValueError, match="`num_classes`"):
        DietBertTextClassifier.from_hugging_face(model)
    with pytest.warns(UserWarning, match="has no pooler"):
        new = DietBertTextClassifier.from_hugging_face(model, num_classes=3)
    assert new.class_names is None


# === Folders ===


def test_weights_may_be_in_several_files(tmp_path):
    """The decoder and the head of T5 are left out."""
    model = make("t5", "ForConditionalGeneration")
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    files = list(tmp_path.glob("*.safetensors"))
    assert len(files) > 2
    # Some files have the embeddings again, and the head.
    tensors = {
        "encoder.embed_tokens.weight": model.shared.weight.detach().numpy(),
        "lm_head.weight": np.ones((VOCABULARY_SIZE, 24), "float32"),
    }
    save_file({**load_file(files[0]), **tensors}, files[0])
    assert_same_states(DietBertBackbone.from_hugging_face(tmp_path), model.encoder)


LINEAR = {"rope_type": "linear", "rope_theta": 77.0, "factor": 3.0}
# Short texts, whose pairs of numbers turn less than twice. All values differ from defaults.
YARN = {"rope_type": "yarn", "rope_theta": 77.0, "factor": 3.0, "beta_fast": 1.5}
YARN |= {"beta_slow": 0.2, "original_max_position_embeddings": 9, "attention_factor": 1.3}
# Of lengths beyond that of the training, which is shorter than the inputs.
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 77.0, "factor": 3.0}
OF_MODERNBERT = {"full_attention": YARN, "sliding_attention": LINEAR}


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("eurobert", {"rope_parameters": LINEAR}),
        ("gte", {"rope_parameters": YARN}),
        ("jina_embeddings_v3", {"rope_parameters": DYNAMIC, "max_position_embeddings": 5}),
        ("modernbert", {"rope_parameters": OF_MODERNBERT}),
    ],
)
def test_scaled_rotary_positions(model_type, changes, rng, tmp_path):
    """They change the outputs, are those of `transformers`, and come back."""
    plain, model = make(model_type), make(model_type, **changes)
    model.load_state_dict(plain.state_dict())
    inputs = random_inputs(rng, 1, model.config.pad_token_id)
    expected = states(model, inputs)
    assert np.abs(states(plain, inputs) - expected).max() > 0.01
    backbone = DietBertBackbone.from_hugging_face(model)
    assert_close(states(backbone, inputs), expected, 2e-5)
    backbone.export_to_hugging_face(tmp_path)
    np.testing.assert_array_equal(states(type(model).from_pretrained(tmp_path), inputs), expected)


OF_4 = {"rope_parameters": None, "rope_theta": 77.0}
MODERNBERT_OF_4 = {"rope_parameters": None, "layer_types": None, "local_rope_theta": 9.0}
MODERNBERT_OF_4 |= {"global_attn_every_n_layers": 2, "global_rope_theta": 77.0}


@pytest.mark.parametrize(
    ("model_type", "changes"), [("modernbert", MODERNBERT_OF_4), ("eurobert", OF_4)]
)
def test_files_of_transformers_4(model_type, changes, tmp_path):
    import transformers

    make(model_type).save_pretrained(tmp_path)
    change_config(tmp_path, **changes)
    backbone = DietBertBackbone.from_hugging_face(tmp_path)
    bases = {"modernbert": [77.0, 9.0, 77.0], "eurobert": 77.0}
    assert backbone.get_config()["max_wavelength"] == bases[model_type]
    assert_same_states(backbone, transformers.AutoModel.from_pretrained(tmp_path))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        # Another order of the axes, and another size.
        (lambda tensor: tensor.T.copy(), r"must have 28 rows .*shape \(24, 28\)"),
        (lambda tensor: tensor[:, :20].copy(), r"and 672 numbers .*shape \(28, 20\)"),
    ],
)
def test_other_shapes_are_refused(changed, message, tmp_path):
    make("bert").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "encoder.layer.1.intermediate.dense.weight"
    save_file({**tensors, name: changed(tensors[name])}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=f"`{name}` .*{message}"):
        DietBertBackbone.from_hugging_face(tmp_path)


@pytest.mark.parametrize("file", ["pytorch_model.bin", "tf_model.h5"])
def test_other_files_of_weights_are_refused(tmp_path, file):
    make("bert").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / file)
    with pytest.raises(ValueError, match=f"`model.safetensors`.*{file}.*can run code"):
        DietBertBackbone.from_hugging_face(tmp_path)
    with pytest.raises(ValueError, match=r"`source` must be a folder .*source=3"):
        DietBertBackbone.from_hugging_face(3)


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_two_classes_without_names(tmp_path):
    # `transformers` writes no names of two classes that it has named itself.
    make("bert", "ForSequenceClassification").save_pretrained(tmp_path)
    assert "id2label" not in json.loads((tmp_path / "config.json").read_text())
    # Only embedders read the pooling of sentence-transformers.
    types = [{"type": f"models.{name}", "path": ""} for name in ("Transformer", "Pooling")]
    (tmp_path / "modules.json").write_text(json.dumps(types))
    assert DietBertTextClassifier.from_hugging_face(tmp_path).num_classes == 2


def test_an_old_index_of_files_is_not_read(tmp_path):
    import transformers

    make("bert").save_pretrained(tmp_path, max_shard_size="10KB")
    old = DietBertBackbone.from_hugging_face(tmp_path)
    index = (tmp_path / "model.safetensors.index.json").read_text()
    new = DietBertTextClassifier(randomize_weights(old), 2)
    (tmp_path / "modules.json").write_text("[]")
    new.export_to_hugging_face(tmp_path)
    # Neither the old weights nor those of an embedder.
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["config.json", "model.safetensors"]
    (tmp_path / "model.safetensors.index.json").write_text(index)
    back = DietBertTextClassifier.from_hugging_face(tmp_path)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    kernel = new.output_dense.get_weights()[0]
    np.testing.assert_array_equal(back.output_dense.get_weights()[0], kernel)
    np.testing.assert_array_equal(theirs.classifier.weight.detach().numpy().T, kernel)


def test_an_index_cannot_remove_files_of_other_folders(tmp_path):
    folder, other = tmp_path / "model", tmp_path / "other.safetensors"
    make("bert").save_pretrained(folder)
    backbone = DietBertBackbone.from_hugging_face(folder)
    other.write_text("kept")
    index = {"weight_map": {"weight": "../other.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    backbone.export_to_hugging_face(folder)
    assert other.read_text() == "kept"
    assert not (folder / "model.safetensors.index.json").exists()


@pytest.mark.parametrize(
    ("model_type", "name"),
    [
        ("bert", "cls.predictions.decoder.weight"),
        ("roberta", "lm_head.decoder.weight"),
        ("distilbert", "vocab_projector.weight"),
        ("electra", "generator_lm_head.weight"),
        ("modernbert", "decoder.weight"),
        ("gte", "lm_head.decoder.weight"),
        ("t5", "encoder.embed_tokens.weight"),
    ],
)
def test_embeddings_that_are_not_tied_are_refused(model_type, name, tmp_path):
    """The configuration says that they are. `transformers` uses the tensor in the file."""
    is_t5 = model_type == "t5"
    cls = DietBertBackbone if is_t5 else DietBertMaskedLM
    model = make(model_type, "Model" if is_t5 else "ForMaskedLM", tie_word_embeddings=True)
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    embeddings = model.get_input_embeddings().weight.detach().numpy()
    tensors = load_file(file)
    assert name not in tensors
    save_file({**tensors, name: embeddings}, file)
    cls.from_hugging_face(tmp_path)
    save_file({**tensors, name: embeddings[::-1].copy()}, file)
    with pytest.raises(ValueError, match=f"`{name}` must equal the token embeddings"):
        cls.from_hugging_face(tmp_path)


def test_files_of_the_first_berts(tmp_path):
    """They have other names of normalizations, and integers and masks."""
    model = make("bert", "ForPreTraining")
    model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    old = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensor
        for name, tensor in load_file(file).items()
    }
    old["bert.embeddings.position_ids"] = np.arange(13)[None]
    old["bert.embeddings.mask"] = np.ones((1, 13), "bool")
    save_file(old, file)
    found, expected = (
        DietBertMaskedLM.from_hugging_face(each).get_weights() for each in (tmp_path, model)
    )
    assert_all_close(found, expected, 0)


def test_a_head_that_the_file_does_not_have(tmp_path):
    # As in the configuration of all-mpnet-base-v2.
    make("mpnet").save_pretrained(tmp_path)
    change_config(tmp_path, architectures=["MPNetForMaskedLM"])
    with pytest.raises(ValueError, match="lacks weights of the head of a `MPNetForMaskedLM`"):
        DietBertMaskedLM.from_hugging_face(tmp_path)


def test_arguments_of_the_backbone_replace_those_of_the_configuration():
    options = {"attention_implementation": "blockwise", "recompute": "block", "trainable": False}
    options |= {"name": "teacher", "dropout": 0.0}
    with pytest.warns(UserWarning, match="has no pooler"):
        backbone = DietBertBackbone.from_hugging_face(
            make("distilbert"), dtype="bfloat16", **options
        )
    assert {name: backbone.get_config()[name] for name in options} == options
    assert backbone.dtype_policy.name == "bfloat16"


ABSOLUTE = (
    "bert",
    "bert-generation",
    "roberta",
    "roberta-prelayernorm",
    "megatron-bert",
    "electra",
)
FALSE = [(each, "is_decoder") for each in (*ABSOLUTE, "roformer")]
FALSE += [("modernbert", f"{each}_bias") for each in ("attention", "mlp", "norm")]
FALSE += [("eurobert", f"{each}_bias") for each in ("attention", "mlp")]
FALSE += [("roformer", "rotary_value")]


@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        # As in the configuration of Nomic's own code.
        ("nomic_bert", {"hidden_size": None, "n_embd": 24}, "must have hidden_size.*n_embd.*save"),
        ("albert", {"num_hidden_groups": 3}, "`num_hidden_groups` must be 1"),
        ("ernie", {"use_task_id": True}, "`use_task_id` must be False"),
        ("jina_bert", {"feed_forward_type": None}, "must be one of 'geglu', 'reglu'.*'original'"),
        ("jina_bert", {"hidden_act": "relu"}, "`hidden_act` must be 'gelu'"),
        ("esm", {"position_embedding_type": None}, "must be 'rotary'.*type='absolute'"),
        ("bert", {"model_type": "gpt2"}, "`model_type` must be one of 'bert'.*'gpt2'"),
        ("deberta-v2", {"position_buckets": None}, "must be 256.*position_buckets=-1"),
        ("deberta-v2", {"relative_attention": None}, "`relative_attention` must be True"),
        ("deberta-v2", {"pos_att_type": "p2c"}, "`pos_att_type` must be one of 'c2p|p2c'"),
        ("deberta-v2", {"conv_kernel_size": 3}, "`conv_kernel_size` must be 0"),
        ("deberta-v2", {"embedding_size": 12}, "`embedding_size` must be 24"),
        ("bert", {"hidden_act": "mish"}, "`hidden_act` must be one of 'gelu'.*'mish'"),
        ("bert", {"add_cross_attention": True}, "`add_cross_attention` must be False"),
        ("bert", {"num_hidden_layers": 4}, r"lacks weights .*: encoder\.layer\.3\."),
        ("bert", {"num_hidden_layers": 2}, r"weights that no encoder .*: encoder\.layer\.2\."),
        ("t5", {"feed_forward_proj": "gated-silu"}, "`feed_forward_proj` must be one of 'relu'"),
        ("eurobert", {"num_key_value_heads": 1}, "num_key_value_heads=1"),
        ("nomic_bert", {"rope_parameters": {"rope_type": "llama3"}}, "'rope_type'.*'llama3'"),
        ("gte", {"rope_parameters": {**YARN, "mscale": 1.0}}, r"'yarn' takes .*\['mscale'\]"),
        ("mpnet", {"pad_token_id": 2}, "`pad_token_id` must be 1"),
        *((each, {"relative_attention_num_buckets": 16}, "must be 32") for each in ("mpnet", "t5")),
        *((each, {"position_embedding_type": "relative_key"}, "'absolute'") for each in ABSOLUTE),
        *((each, {name: True}, f"`{name}` must be False") for each, name in FALSE),
        # One value in the place of another.
        ("distilbert", {"num_attention_heads": 6}, r"`n_heads` must be 6.*n_heads=3 in `"),
        # What `transformers` refuses.
        ("bert", {"hidden_size": "24"}, r"of `.*'bert', of which it says: .*'hidden_size'"),
        ("gte", {"rope_parameters": {"rope_type": "yarn"}}, r"of `.*'gte', .*says: .*'factor'"),
        # As files of transformers 4 have it.
        ("eurobert", {**OF_4, "rope_scaling": {"type": "ntk", "factor": 2.0}}, "'rope_type'.*ntk"),
        ("modernbert", {**OF_4, "rope_scaling": {"rope_type": "yarn"}}, "'yarn': {'factor'}"),
        (
            "modernbert",
            {**OF_4, "rope_scaling": {"type": "linear", "factor": 2.0}},
            "one of 'linear'",
        ),
    ],
)
def test_values_that_change_the_computation_are_refused(model_type, changes, message, tmp_path):
    make(model_type).save_pretrained(tmp_path)
    change_config(tmp_path, **changes)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        DietBertBackbone.from_hugging_face(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("decoder_bias", False, "True"),
        ("classifier_bias", True, "False"),
        ("classifier_activation", "relu", "'gelu'"),
        ("tie_word_embeddings", False, "True"),
    ],
)
def test_values_that_change_a_head_are_refused_by_its_task(name, value, right):
    model = make("modernbert", "ForMaskedLM", **{name: value})
    with pytest.raises(ValueError, match=f"`{name}` must be {right}"):
        DietBertMaskedLM.from_hugging_face(model)
    DietBertBackbone.from_hugging_face(model)


# Names of the dropout rate that a backbone takes, if they differ from BERT's.
DROPOUT = {"distilbert": "dropout", "t5": "dropout_rate", "mt5": "dropout_rate"}
DROPOUT |= {"modernbert": "mlp_dropout", "eurobert": "attention_dropout"}
# Names of sizes, which `transformers` always writes.
WRITTEN = {"vocab_size", "max_position_embeddings", *DISTILBERT, *T5_SIZES}
WRITTEN |= {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}
# Without these, its models cannot be read, or have too many weights.
NEEDED = {"esm": {"position_embedding_type": "rotary", "pad_token_id": 3}}
NEEDED |= {"rembert": {"input_embedding_size": 20}}
NEEDED |= {each: {**DEBERTA, "pooler_hidden_act": "gelu"} for each in ("deberta", "deberta-v2")}


@pytest.mark.parametrize(
    "model_type", [each for each in ENCODERS if each not in ("t5-relu", *JINA)]
)
def test_values_that_are_left_out_have_the_defaults_of_transformers(model_type, tmp_path):
    import transformers

    default = transformers.AutoConfig.for_model(model_type)
    sizes = {**SIZES, **DISTILBERT, **T5_SIZES}
    sizes = {name: sizes[name] for name in WRITTEN & default.to_dict().keys()}
    sizes["vocab_size"] = max(VOCABULARY_SIZE, 1 + (default.pad_token_id or 0))
    written = {**sizes, **NEEDED.get(model_type, {})}
    model = make(model_type, only={**written, "initializer_range": 0.3})
    model.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, **written}))
    backbone = DietBertBackbone.from_hugging_face(tmp_path)
    name = DROPOUT.get(model_type, "hidden_dropout_prob")
    assert backbone.dropout == getattr(default, name)
    assert_same_states(backbone, model)
    everything = json.loads(model.config.to_json_string(use_diff=False))
    change_config(tmp_path, **{**everything, name: 0.35})
    whole = DietBertBackbone.from_hugging_face(tmp_path).get_config()
    assert whole == {**backbone.get_config(), "dropout": 0.35, "name": whole["name"]}


@pytest.mark.parametrize(
    ("pooling_mode", "normalize"), [("cls", True), ("mean", False), ("max", True)]
)
def test_embedders_are_written_for_sentence_transformers(tmp_path, pooling_mode, normalize):
    import sentence_transformers

    backbone = randomize_weights(tiny_backbone(**AT_INPUT))
    tokenizer, texts = DietBertTokenizer(VOCABULARY, lowercase=False), [*TEXTS, "THE Fox dog"]
    preprocessor = DietBertTextEmbedderPreprocessor(tokenizer, sequence_length=9)
    embedder = DietBertTextEmbedder(backbone, preprocessor, pooling_mode, normalize)
    # An older model of the folder puts a prompt before each text.
    older = {"prompts": {"query": "the"}, "default_prompt_name": "query"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(older))
    embedder.export_to_hugging_face(tmp_path, "bert")
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    assert theirs.max_seq_length == 9
    expected = to_numpy(embedder.encode_text(texts, verbose=0))
    assert_close(theirs.encode(texts), expected, 1e-5)
    back = DietBertTextEmbedder.from_hugging_face(tmp_path)
    assert (back.pooling_mode, back.normalize) == (pooling_mode, normalize)
    assert_close(back.encode_text(texts, verbose=0), expected, 1e-6)


PAIRS = (["the quick fox", "foxes and cats sleep ."], ["a red cat jumped", "birds"])


def test_a_task_is_written_with_its_tokenizer(tmp_path):
    import transformers

    classifier = DietBertTextClassifier(
        randomize_weights(tiny_backbone(**AT_INPUT)),
        preprocessor=tiny_preprocessor("classifier", VOCABULARY[::-1]),
        class_names=list("abc"),
    )
    classifier.export_to_hugging_face(tmp_path, "bert")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    found = model(**tokenizer(*PAIRS, padding=True, return_tensors="pt")).logits.detach()
    assert_close(found, classifier.predict(PAIRS, verbose=0))
    assert (tokenizer.mask_token, tokenizer.unk_token) == ("[MASK]", "[UNK]")
    assert model.config.pad_token_id == tokenizer.pad_token_id == 30
    longest = classifier.backbone.max_sequence_length
    back = DietBertTextClassifier.from_hugging_face(tmp_path)
    assert tokenizer.model_max_length == back.preprocessor.sequence_length == longest
    assert_close(back.predict(PAIRS, verbose=0), found)
    assert back.class_names == classifier.class_names


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("position_encoding", "diet_abs"),
        ("pooler_activation", "silu"),
        ("normalize_embeddings", False),
        ("attention_windows", [None, 3]),
        ("attention_scale", 0.7),
        ("use_bias", False),
    ],
)
def test_arguments_that_transformers_does_not_have(tmp_path, name, value):
    backbone = tiny_backbone(**{**AT_INPUT, name: value})
    message = f"A 'bert' .* does not compute .*'{name}': {re.escape(repr(value))}"
    with pytest.raises(ValueError, match=message):
        backbone.export_to_hugging_face(tmp_path, "bert")


WITHOUT_EFFECT = {
    **{
        "dropout": 0.3,
        "activation_dropout": 0.2,
        "attention_dropout": 0.1,
        "frozen_layers": ["pooled_dense"],
    },
    **{"attention_implementation": "full", "recompute": "block", "bias_initializer": "ones"},
    **{"name": "mine", "trainable": False, "dtype": "bfloat16"},
    # These say what is the default.
    **{"attention_scale": 8**-0.5, "attention_windows": [None, None, None]},
}
OF_T5 = {"sharing": "layer-wise", "max_distance": 128}


@pytest.mark.parametrize(("model_type", "changes"), [("bert", WITHOUT_EFFECT), ("mpnet", OF_T5)])
def test_arguments_without_effect_are_left_out(model_type, changes, tmp_path):
    original = DietBertBackbone.from_hugging_face(make(model_type))
    changed = DietBertBackbone.from_config({**original.get_config(), **changes})
    written = []
    for backbone in (original, changed):
        backbone.export_to_hugging_face(tmp_path, model_type)
        config = json.loads((tmp_path / "config.json").read_text())
        written.append({key: config[key] for key in config if "dropout" not in key})
    assert written[0] == written[1]


def test_a_model_from_elsewhere_needs_its_type(tmp_path):
    roberta = DietBertBackbone.from_hugging_face(make("roberta"))
    copy = DietBertBackbone.from_config(roberta.get_config())
    with pytest.raises(
        ValueError, match=r"model_type=None.*: roberta, xlm-roberta, camembert, dat"
    ):
        copy.export_to_hugging_face(tmp_path)
    bert = DietBertBackbone.from_config(
        DietBertBackbone.from_hugging_face(make("bert")).get_config()
    )
    # A RemBERT always projects its embeddings.
    with pytest.raises(ValueError, match=r"computes are: bert, ernie\. With"):
        bert.export_to_hugging_face(tmp_path)
    with pytest.raises(ValueError, match="compute what the model computes are: none"):
        tiny_backbone().export_to_hugging_face(tmp_path)
    with pytest.raises(ValueError, match=r"`model_type` must be one of 'bert'.*'gpt2'"):
        copy.export_to_hugging_face(tmp_path, "gpt2")
    # Another type than the one that was read.
    roberta.export_to_hugging_face(tmp_path, "camembert")
    assert DietBertBackbone.from_hugging_face(tmp_path).hugging_face_type == "camembert"


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"num_classes": 1}, "regression"),
        ({"num_classes": 3}, "single_label_classification"),
        ({"class_names": NAMES, "multi_label": True}, "multi_label_classification"),
    ],
)
def test_kinds_of_labels_are_written(arguments, kind, tmp_path):
    task = DietBertTextClassifier(tiny_backbone(**AT_INPUT, activation="gelu"), **arguments)
    task.export_to_hugging_face(tmp_path, "bert")
    config = json.loads((tmp_path / "config.json").read_text())
    names = task.class_names or [f"LABEL_{i}" for i in range(task.num_classes)]
    assert config["label2id"] == {name: i for i, name in enumerate(names)}
    assert (config["problem_type"], config["hidden_act"]) == (kind, "gelu")
    back = DietBertTextClassifier.from_hugging_face(tmp_path)
    for name in ("num_classes", "class_names", "multi_label"):
        assert getattr(back, name) == getattr(task, name)


def with_lora():
    backbone = tiny_backbone(**AT_INPUT)
    backbone.enable_lora(2)
    return backbone


def with_quantized_weights():
    backbone = tiny_backbone(**AT_INPUT)
    backbone.pooled_dense.quantize("int8")
    return backbone


def with_a_bias_of_gates():
    gte = DietBertBackbone.from_hugging_face(make("gte"))
    gte.encoder.transformer_layers[2].feedforward_gate_dense.bias.assign(np.ones(28))
    return gte


def with_other_padding():
    backbone = tiny_backbone(**AT_INPUT, first_position=2)
    return DietBertTextClassifier(backbone, 2, preprocessor=tiny_preprocessor("classifier"))


def cut_from_the_end():
    preprocessor = tiny_preprocessor("classifier", truncate="waterfall")
    return DietBertTextClassifier(tiny_backbone(**AT_INPUT), 2, preprocessor=preprocessor)


def with_another_head():
    return DietBertMaskedLM(tiny_backbone(**AT_INPUT, activation="gelu"), activation="relu")


ACTIVATIONS = [
    ("sigmoid", DietBertTextClassifier, {"num_classes": 1}),
    ("sigmoid", DietBertTextClassifier, {"num_classes": 3, "multi_label": True}),
    ("softmax", DietBertTextClassifier, {"class_names": NAMES}),
    ("tanh", DietBertTextClassifier, {"num_classes": 2}),
    ("softmax", DietBertTokenClassifier, {"num_classes": 3}),
]


@pytest.mark.parametrize(("activation", "cls", "arguments"), ACTIVATIONS)
def test_activations_of_heads_are_not_written(activation, cls, arguments, tmp_path):
    """Models of `transformers` return logits. The message says how to write the model."""
    backbone = randomize_weights(tiny_backbone(**AT_INPUT, num_layers=1, activation="gelu"))
    task, logits = (cls(backbone, activation=each, **arguments) for each in (activation, None))
    with pytest.raises(ValueError, match=f"because it returns logits.*activation='{activation}'"):
        task.export_to_hugging_face(tmp_path / "new", "bert")
    assert not (tmp_path / "new").exists()
    logits.set_weights(task.get_weights())
    logits.export_to_hugging_face(tmp_path, "bert")
    back = cls.from_hugging_face(tmp_path, activation=activation)
    inputs = tiny_inputs(np.random.default_rng(3))
    assert_close(back(inputs), task(inputs), 1e-6)


@pytest.mark.parametrize(
    ("make_model", "model_type", "message"),
    [
        (with_lora, "bert", "LoRA or quantized"),
        (with_quantized_weights, "bert", "LoRA or quantized"),
        (with_a_bias_of_gates, "gte", r"no `encoder\.layer\.2\.mlp\.up_gate_proj\.bias`"),
        (with_other_padding, "roberta", r"must be 1\..*pad_token_id=0, first_position=2"),
        (cut_from_the_end, "bert", "truncate='waterfall'"),
        (with_another_head, "bert", r"`activation` must be 'gelu'.*activation='relu'"),
    ],
)
def test_what_transformers_cannot_compute_is_not_written(make_model, model_type, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        make_model().export_to_hugging_face(tmp_path / "new", model_type)
    assert not (tmp_path / "new").exists()


# With `trust_remote_code=True`, `transformers` reads a JinaBERT so.
CODE = "jinaai/jina-bert-implementation--"
AUTO_MAP = {"AutoConfig": f"{CODE}configuration_bert.JinaBertConfig"}
AUTO_MAP |= {"AutoModel": f"{CODE}modeling_bert.JinaBertModel"}
AUTO_MAP |= {f"AutoModel{head}": f"{CODE}modeling_bert.JinaBert{head}" for head in HEADS}


def test_arguments_with_another_form_are_written(tmp_path):
    without_segments = DietBertBackbone.from_hugging_face(make("gte", type_vocab_size=0))
    arguments = DietBertBackbone.from_hugging_face(make("t5")).get_config()
    of_t5 = DietBertBackbone.from_config({**arguments, "max_distance": None})
    electra = DietBertBackbone.from_hugging_face(make("electra", embedding_size=24))
    without_windows = make("modernbert", layer_types=["full_attention"] * 3)
    for backbone, model_type, name, value in (
        (electra, None, "embedding_size", 24),
        (DietBertBackbone.from_hugging_face(without_windows), None, "local_attention", 128),
        (without_segments, None, "type_vocab_size", 0),
        (of_t5, "t5", "relative_attention_max_distance", 128),
        (DietBertBackbone.from_hugging_face(make("jina_bert")), None, "auto_map", AUTO_MAP),
    ):
        backbone.export_to_hugging_face(tmp_path, model_type)
        assert json.loads((tmp_path / "config.json").read_text())[name] == value
        back = DietBertBackbone.from_hugging_face(tmp_path)
        assert back.segment_encoding == backbone.segment_encoding


# === DIET from other encoders than BERT ===


@every_backend
@pytest.mark.parametrize(
    ("model_type", "arguments"),
    [
        # The bias of T5 is a number for each distance, and a bias of full rank is any matrix.
        ("t5", {"position_encoding": "diet_rel"}),
        *once(
            ("t5", {"position_encoding": "diet_abs", "rank": LENGTH}),
            ("mpnet", {"position_encoding": "diet_abs_input", "rank": LENGTH}),
            ("roberta", {"position_encoding": "input"}),
            ("roberta-prelayernorm", {"position_encoding": "input"}),
            ("electra", {"position_encoding": "input"}),
        ),
    ],
)
def test_diet_has_the_scores_of_a_bias(model_type, arguments, rng):
    model = make(model_type)
    inputs = random_inputs(rng, 1, model.config.pad_token_id)
    diet = DietBertBackbone.from_bert(model, max_sequence_length=LENGTH, **arguments)
    expected = DietBertBackbone.from_hugging_face(model)(inputs)["sequence_output"]
    assert_close(diet(inputs)["sequence_output"], expected, 1e-4)


@pytest.mark.parametrize(
    "model_type",
    # Positions by distance, rotary ones also with tokens that are dropped, embeddings that are not
    # normalized or are projected, and one layer several times. Other tests have other kinds.
    ["jina_bert", "roformer", "esm", "megatron-bert", "rembert", "albert"],
)
def test_every_kind_of_encoder_becomes_diet(model_type, rng):
    model = make(model_type)
    diet = DietBertBackbone.from_bert(model, "diet_abs", max_sequence_length=LENGTH)
    assert diet.first_position is None
    inputs = random_inputs(rng, 1, model.config.pad_token_id)
    assert np.isfinite(to_numpy(diet(inputs)["sequence_output"])).all()
    bias = to_numpy(diet.encoder.position_biases[-1](np.zeros((1, LENGTH, 24))))
    assert bias.std() > 1e-3


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("modernbert", {"position_encoding", "max_wavelength", "sharing"}),
        ("t5", {"position_encoding", "sharing", "max_distance"}),
        # One segment is none.
        ("roberta", {"position_encoding", "first_position", "sharing", "segment_encoding"}),
    ],
)
def test_diet_keeps_what_is_no_position(model_type, changes):
    model = make(model_type, type_vocab_size=1, n_positions=LENGTH)
    original, diet = (
        make_backbone(model).get_config()
        for make_backbone in (DietBertBackbone.from_hugging_face, DietBertBackbone.from_bert)
    )
    names = original.keys() | diet.keys()
    assert {each for each in names if original.get(each) != diet.get(each)} - {"name"} == changes
    assert diet["segment_encoding"] == "none"


@pytest.mark.parametrize(
    ("config", "cls_token_id"),
    [({}, 3), ({"tokenizer_class": "TokenizersBackend", "bos_token": "</s>"}, 2)],
)
def test_the_start_token_of_any_tokenizer(tmp_path, config, cls_token_id):
    make("roberta").save_pretrained(tmp_path)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.add_special_tokens(["<mask>", "<pad>", "</s>", "<s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    found = DietBertBackbone.from_bert(tmp_path)
    expected = DietBertBackbone.from_bert(tmp_path, cls_token_id=cls_token_id)
    np.testing.assert_array_equal(
        *(each.token_embedding.get_weights()[0] for each in (found, expected))
    )


def test_diet_has_the_scores_of_the_mean_rotary_query(rng):
    model = make("modernbert")
    original = DietBertBackbone.from_hugging_face(model)
    diet = DietBertBackbone.from_bert(model, "diet_abs", LENGTH, max_sequence_length=LENGTH)
    mean = to_numpy(original.embed(np.arange(VOCABULARY_SIZE)[None])).mean(axis=1)[0]
    for layer, base in ((0, 70.0), (1, 300.0)):
        attention = original.encoder.transformer_layers[layer].self_attention
        kernels = (attention.query_dense.kernel, attention.key_dense.kernel)
        query, key = (np.einsum("d,dhk->hk", mean, to_numpy(kernel)) for kernel in kernels)
        angles = np.arange(LENGTH)[:, None] * base ** (-np.arange(4) / 4)
        turn = np.exp(1j * angles)[:, None]
        complex_query, complex_key = (turn * (x[:, :4] + 1j * x[:, 4:]) for x in (query, key))
        scores = np.einsum("nhk,mhk->hnm", complex_query, complex_key.conj()).real / np.sqrt(8)
        scores -= scores.mean(axis=-1, keepdims=True)
        bias = to_numpy(diet.encoder.position_biases[layer](np.zeros((1, LENGTH, 24))))[0]
        assert_close(bias, scores, 1e-4)


def test_diet_has_the_scores_of_projected_positions():
    model = make("electra", num_hidden_layers=1)
    original = DietBertBackbone.from_hugging_face(model)
    diet = DietBertBackbone.from_bert(model, rank=LENGTH, max_sequence_length=LENGTH)
    encoding, tokens = original.input_encoding, original.token_embedding.get_weights()[0]
    positions = encoding.position_embedding.get_weights()[0][:LENGTH]
    mean = positions[1:].mean(axis=0)
    parts = positions - mean
    parts[0] = 0.0
    sums = tokens + mean + encoding.segment_embedding.get_weights()[0].mean(axis=0)
    sigma = np.sqrt(sums.var(axis=-1).mean() + parts.var(axis=-1).mean())
    gamma, kernel = (
        layer.get_weights()[0]
        for layer in (original.embeddings_layer_norm, original.embeddings_projection)
    )
    parts = gamma * (parts - parts.mean(axis=-1, keepdims=True)) / sigma @ kernel
    attention = original.encoder.transformer_layers[0].self_attention
    query, key = (
        np.einsum("nd,dhk->hnk", parts, to_numpy(dense.kernel))
        for dense in (attention.query_dense, attention.key_dense)
    )
    scores = query @ np.swapaxes(key, 1, 2) / np.sqrt(8)
    bias = to_numpy(diet.encoder.position_biases[0](np.zeros((1, LENGTH, 24))))[0]
    assert_close(bias, scores - scores.mean(axis=-1, keepdims=True), 1e-4)


@pytest.mark.parametrize(
    ("model_type", "position_encoding"),
    [("mpnet", "input"), ("t5", "input"), ("gte", "diet_abs_input")],
)
def test_positions_that_are_not_at_the_input(model_type, position_encoding):
    with pytest.raises(ValueError, match=f"other positions than '{position_encoding}'"):
        DietBertBackbone.from_bert(make(model_type), position_encoding)
