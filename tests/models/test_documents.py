"""Several documents in a sequence: models compute what they compute for each by itself."""

import functools

import keras
import numpy as np
import pytest

from keras_diet.analysis import attention_scores
from tests.helpers import assert_close, compiled, every_backend, once, to_numpy
from tests.models.tasks import tiny_task
from tests.models.test_data import PyDataset
from tests.models.tiny import SIZES, randomize_weights, tiny_backbone

# Documents of 3, 1, 5, 2 and 6 tokens, and padding.
IDS = np.array([[3, 3, 3, 1, 7, 7, 7, 7, 7, 0, 0], [4, 4, 5, 5, 5, 5, 5, 5, 0, 0, 0]], "int32")
BATCH, LENGTH = IDS.shape
# `tests/layers/transformer/test_documents.py` has the other encodings in a stack.
BACKBONES = [
    # As in RoBERTa, where padding has the position before the first.
    {"position_encoding": "input", "first_position": 2, "segment_encoding": "input"},
    *once(
        {"position_encoding": "diet_abs"},
        {"position_encoding": "t5_input", "attention_windows": (None, 3), "embedding_dim": 7},
        {"position_encoding": "sinusoidal", "segment_encoding": "none"},
    ),
]
pytestmark = pytest.mark.any_backend


def make_inputs(rng, **arrays):
    """Inputs of a backbone. One token of a document is padding."""
    shape, padding_mask = IDS.shape, (IDS > 0).astype("int32")
    padding_mask[0, 6] = 0
    return {
        "token_ids": rng.integers(1, SIZES["vocabulary_size"], shape).astype("int32"),
        "segment_ids": rng.integers(2, size=shape).astype("int32"),
        "padding_mask": padding_mask,
        "document_ids": IDS,
        **arrays,
    }


def of_documents(inputs):
    """The tokens of each document, and the document as the inputs of one sequence."""
    for row in range(BATCH):
        for number in set(IDS[row]) - {0}:
            at = (row, np.flatnonzero(IDS[row] == number))
            names = ("token_ids", "segment_ids", "padding_mask")
            yield at, {name: inputs[name][at][None] for name in names}


@every_backend
@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize("arguments", BACKBONES, ids=str)
def test_backbone(rng, arguments):
    backbone, inputs = randomize_weights(tiny_backbone(**arguments)), make_inputs(rng)
    # The second time PyTorch records the graph, and then runs it.
    others = {**inputs, "document_ids": IDS[::-1]}
    found = [backbone.predict(each, verbose=0) for each in (inputs, others, inputs)]
    expected_outputs = [
        (at, document, compiled(functools.partial(backbone, document))())
        for at, document in of_documents(inputs)
    ]
    for outputs in (found[0], found[2], backbone(inputs)):
        outputs = {name: to_numpy(output) for name, output in outputs.items()}
        for at, document, expected in expected_outputs:
            is_token = document["padding_mask"][0] == 1
            output = outputs["sequence_output"][at]
            assert_close(output[is_token], to_numpy(expected["sequence_output"])[0][is_token])
            if at[1][0] == 0:
                assert_close(outputs["pooled_output"][at[0]], expected["pooled_output"][0])


def test_the_graph_has_no_documents(rng):
    model, inputs = tiny_task("masked_lm", with_preprocessor=False), make_inputs(rng)
    names = ["padding_mask", "segment_ids", "token_ids"]
    assert sorted(model.backbone.input) == names
    assert sorted(model.input) == ["mask_positions", *names]
    # It may be part of a model with documents.
    inputs["mask_positions"] = np.array([[1, 5], [0, 3]])
    symbolic = {name: keras.Input((None,), dtype="int32", name=name) for name in inputs}
    outer = keras.Model(symbolic, model(symbolic))
    assert_close(outer.predict(inputs, verbose=0), model(inputs))


@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_masked_lm(rng, kind):
    model = randomize_weights(tiny_task("masked_lm", with_preprocessor=False))
    positions, weights = np.array([[1, 3, 8], [0, 7, 2]]), np.array([[1.0, 1, 1], [1, 1, 0]])
    inputs = make_inputs(rng, mask_positions=positions)
    labels = np.take_along_axis(inputs["token_ids"], positions, axis=1)
    expected = []
    for (row, places), document in of_documents(inputs):
        at = np.isin(positions[row], places) & (weights[row] > 0)
        document["mask_positions"] = positions[row][at][None] - places[0]
        if at.any():
            logits = to_numpy(model(document))[0].astype("float64")
            shifted = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            expected += list(-shifted[np.arange(at.sum()), labels[row, at]])
    data = {"x": inputs, "y": labels, "sample_weight": weights}
    if kind == "dataset":
        data = {"x": PyDataset([tuple(data.values())])}
    assert_close(model.evaluate(**data, verbose=0)[0], np.mean(expected))
    before = to_numpy(model.backbone.token_embedding.embeddings)
    history = model.fit(**data, verbose=0)
    assert_close(history.history["loss"][0], np.mean(expected))
    assert np.abs(to_numpy(model.backbone.token_embedding.embeddings) - before).max() > 1e-5


def test_token_classifier(rng):
    model = randomize_weights(tiny_task("token_classifier", with_preprocessor=False))
    inputs = make_inputs(rng)
    found = model.predict(inputs, verbose=0)
    for at, document in of_documents(inputs):
        is_token = document["padding_mask"][0] == 1
        assert_close(found[at][is_token], to_numpy(model(document))[0][is_token])


def test_scores_for_analysis(rng):
    backbone = randomize_weights(tiny_backbone(position_encoding="diet_abs_input"))
    inputs = make_inputs(rng)
    found = attention_scores(backbone, inputs)
    for (row, places), document in of_documents(inputs):
        pairs = found[:, row][:, :, places][..., places]
        assert_close(pairs, attention_scores(backbone, document)[:, 0])


@pytest.mark.parametrize("task", ["classifier", "embedder"])
def test_models_with_one_result_for_a_sequence_refuse_documents(rng, task):
    model, inputs = tiny_task(task, with_preprocessor=False), make_inputs(rng)
    for call, message in (
        (model, "`document_ids` would be ignored by a DietBertText"),
        (model.predict, "and no others. Received.*'document_ids'"),
    ):
        with pytest.raises(ValueError, match=message):
            call(inputs)


@pytest.mark.parametrize(
    "ids, message",
    [
        (IDS - 1, "from 0 on.*values from -1 to 6"),
        (IDS / 2, "from 0 on.*values from 0.0 to 3.5"),
        (np.where(IDS == 7, 3, IDS), "next to each other"),
        (IDS[:, :5], r"other inputs. Received: shape=\(2, 5\)"),
    ],
)
def test_refused_ids(rng, ids, message):
    backbone, inputs = tiny_backbone(), make_inputs(rng, document_ids=ids)
    for call in (backbone, backbone.predict):
        with pytest.raises(ValueError, match=rf"x\['document_ids'\].*{message}"):
            call(inputs)
