"""`DietTransformerSeq2SeqLM`: its logits, its loss, its data, and what it refuses."""

import keras
import numpy as np
import pytest

from keras_diet.models import (
    DietTransformerSeq2SeqLM,
    DietTransformerSeq2SeqLMPreprocessor,
    DietTransformerTokenizer,
)
from keras_diet.samplers import BeamSearchSampler
from tests.helpers import assert_close
from tests.models.diet_transformer.pairs import SOURCES, TARGETS
from tests.models.diet_transformer.tiny import (
    prompts,
    random_inputs,
    tiny_backbone,
    tiny_task,
    tiny_translator,
)

BACKEND = keras.backend.backend()
any_backend = pytest.mark.any_backend
PAIRS = {"encoder_text": SOURCES, "decoder_text": TARGETS}


@any_backend
def test_defaults_of_compile():
    task = DietTransformerSeq2SeqLM(tiny_backbone())
    assert isinstance(task.sampler, BeamSearchSampler)
    assert task.sampler.get_config() == BeamSearchSampler().get_config()
    # A new optimizer does not change the sampler.
    task.compile(sampler=BeamSearchSampler(3, 1.7))
    copy = DietTransformerSeq2SeqLM.from_config(task.get_config())
    copy.compile("sgd")
    assert copy.sampler.get_config() == task.sampler.get_config()
    with pytest.warns(UserWarning, match="logits"):
        task.compile(loss=keras.losses.SparseCategoricalCrossentropy())


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.skipif(BACKEND != "tensorflow", reason="JAX always compiles, and PyTorch never")
def test_generation_uses_xla(monkeypatch):
    import tensorflow as tf

    compiled, function = [], tf.function
    monkeypatch.setattr(
        tf, "function", lambda f, **kwargs: compiled.append(kwargs) or function(f, **kwargs)
    )
    task = tiny_task(num_layers=1)
    task.compile(jit_compile=False)
    task.make_generate_function()
    assert compiled == [{"jit_compile": True}]
    # Steps of training are compiled as asked for.
    assert not task.jit_compile


# === Pairs of texts ===


def loss(task, *data, **arguments):
    return task.evaluate(*data, verbose=0, return_dict=True, **arguments)["loss"]


@any_backend
@pytest.mark.filterwarnings("ignore:.* pairs are cut")
@pytest.mark.parametrize("name", ["dictionary", "DataLoader"])
def test_forms_of_pairs_have_the_same_loss(proto, name):
    """Also with shorter batches. Another target of each source has another loss."""
    full, bucketed = tiny_translator(proto), tiny_translator(proto, length_buckets=(11, 35))
    bucketed.set_weights(full.get_weights())
    expected = loss(full, SOURCES, TARGETS, batch_size=3)
    data, arguments = PAIRS, {"batch_size": 3}
    if name == "DataLoader":
        torch, pairs = pytest.importorskip("torch"), list(zip(SOURCES, TARGETS, strict=True))
        data, arguments = torch.utils.data.DataLoader(pairs, batch_size=3), {}
    assert loss(bucketed, data, **arguments) == pytest.approx(expected, rel=1e-5)
    assert abs(loss(full, SOURCES, TARGETS[::-1], batch_size=3) - expected) > 1e-3


@any_backend
@pytest.mark.parametrize("cut", [SOURCES, TARGETS])
def test_cut_pairs_give_a_warning(proto, cut):
    """Texts that just fit are not cut."""
    size = max(len(row) + 1 for row in DietTransformerTokenizer(proto)(cut))
    name = "encoder_sequence_length" if cut is SOURCES else "decoder_sequence_length"
    lengths = {"encoder_sequence_length": 71, "decoder_sequence_length": 71}
    fitting, short = (tiny_translator(proto, **{**lengths, name: n}) for n in (size, size - 1))
    fitting.evaluate(SOURCES, TARGETS, verbose=0)
    with pytest.warns(UserWarning, match=f"Some pairs are cut.*{name}={size - 1} "):
        short.evaluate(SOURCES, TARGETS, verbose=0)


@any_backend
@pytest.mark.filterwarnings("ignore:.* pairs are cut")
def test_fit_and_predict_take_pairs(proto):
    task = tiny_translator(proto)
    validation = {"validation_data": (SOURCES, TARGETS)}
    history = task.fit(SOURCES, TARGETS, batch_size=2, epochs=2, **validation, verbose=0).history
    assert history["val_loss"][-1] < history["val_loss"][0]
    outputs = task.predict(PAIRS, verbose=0)
    assert outputs.shape == (5, 17, 61)
    one = {name: texts[1] for name, texts in PAIRS.items()}
    assert_close(task.predict(one, verbose=0)[0], outputs[1], 1e-4)


# === Refusals ===

INPUTS = random_inputs(np.random.default_rng(3))
LONGER = {f"encoder_{name}": np.ones((2, 14), "int32") for name in ("token_ids", "padding_mask")}
LABELS = INPUTS["decoder_token_ids"]
GENERATE = {
    "max_length": (
        {"max_length": 72},
        "target is longer than `max_sequence_length`.*=72",
    ),
    "invisible": ({"inputs": ["a", "\u200b"]}, "1 to 66 tokens.*: 0 tokens in row 1"),
    "long": ({"inputs": ["a", "the dog", "the dog " * 40]}, "1 to 66 tokens.*tokens in row 2"),
}


@any_backend
@pytest.mark.parametrize("arguments, message", GENERATE.values(), ids=list(GENERATE))
def test_refusals_of_generate(proto, arguments, message):
    task = tiny_translator(proto)
    with pytest.raises(ValueError, match=message):
        task.generate(**{"inputs": SOURCES, "batch_size": 1, **arguments})


PROMPTS = prompts(INPUTS)
OF_IDS = {
    "ids": (lambda t: t.fit({**INPUTS, "decoder_token_ids": LABELS - 1}, LABELS), "from -1 to"),
    "length": (lambda t: t.fit({**INPUTS, **LONGER}, LABELS), "length=14, max_sequence_length=13"),
    "labels": (lambda t: t.fit(INPUTS, LABELS + 31), r"\[0, 31\).*from 31 to"),
    "mask": (lambda t: t.generate({**PROMPTS, "decoder_padding_mask": LABELS + 2}), "1 for tok"),
    "max_length": (lambda t: t.generate(PROMPTS, max_length=5), "need a preprocessor.*length=5"),
    "batch_size": (lambda t: t.generate(PROMPTS, batch_size=1), "need a preprocessor.*size=1"),
    "truncate": (lambda t: t.generate(PROMPTS, truncate=True), "need a preprocessor.*te=True"),
}


@any_backend
@pytest.mark.parametrize("call, message", OF_IDS.values(), ids=list(OF_IDS))
def test_refusals_without_a_preprocessor(call, message):
    with pytest.raises(ValueError, match=message):
        call(tiny_task(num_layers=1))


@any_backend
@pytest.mark.parametrize("size, model_size", [(59, 61), (61, 59)])
def test_other_vocabularies_are_refused(proto, shuffled_proto, size, model_size):
    """In the constructor, and when the preprocessor was set later."""
    protos, message = {61: proto, 59: shuffled_proto}, f"={model_size} and a tokenizer of {size}"
    with pytest.raises(ValueError, match=message):
        tiny_translator(protos[size], {"vocabulary_size": model_size})
    task = tiny_translator(protos[model_size], {"vocabulary_size": model_size})
    tokenizer = DietTransformerTokenizer(protos[size])
    task.preprocessor = DietTransformerSeq2SeqLMPreprocessor(tokenizer, 67, 17)
    for call in (lambda: task.generate(SOURCES), lambda: task.fit(SOURCES, TARGETS)):
        with pytest.raises(ValueError, match=message):
            call()
