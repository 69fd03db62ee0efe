"""`DietTransformerSeq2SeqLM.generate` against full forward passes, one row at a time."""

import functools

import keras
import numpy as np
import pytest
from keras import tree

from keras_diet.samplers import BeamSearchSampler, beam_search_sampler
from tests.helpers import compiled, to_numpy
from tests.models.diet_transformer.pairs import SOURCES
from tests.models.diet_transformer.tiny import (
    TARGET_LENGTH,
    prompts,
    random_inputs,
    rows,
    tiny_task,
    tiny_translator,
)
from tests.samplers.reference import beam_search
from tests.samplers.tables import compiled_loop

any_backend = pytest.mark.any_backend
# Several, so that some sequences end early.
STOPS = (3, 6, 20)
# One encoding of each kind. `tests/layers/transformer/test_stacks.py` has the steps of all.
SPECIFICATIONS = {
    "default": {},
    "not across": {"position_encoding": "shaw", "cross_attention_positions": False},
    "diet_abs_input": {"position_encoding": "diet_abs_input", "normalize_first": False},
    # The embeddings also compute the logits.
    "adapter": {},
    "int8": {},
}
OF_LOGITS = ("default",)


@functools.cache
def task_of(name="default"):
    """Generation does not change a task, so tests share one."""
    task = tiny_task(**SPECIFICATIONS[name])
    embedding = task.backbone.token_embedding
    if name == "adapter":
        embedding.enable_lora(2)
        shape = embedding.lora_embeddings_b.shape
        embedding.lora_embeddings_b.assign(np.random.default_rng(3).normal(size=shape))
    elif name == "int8":
        # Each token has its own scale.
        embedding.embeddings.assign(embedding.embeddings * np.linspace(0.3, 1.7, 31)[:, None])
        embedding.quantize("int8")
    return task


@functools.cache
def full_pass(name="default"):
    """The logits of a task as a function of the inputs."""
    task = task_of(name)
    names = list(task.input)
    logits = compiled_loop(lambda *arrays: task(dict(zip(names, arrays, strict=True))))
    return lambda inputs: to_numpy(logits(*(inputs[name] for name in names)))


def generate(task, inputs, sampler="greedy", stop_token_ids=STOPS):
    task.compile(sampler=sampler)
    outputs = task.generate(inputs, stop_token_ids=stop_token_ids)
    assert set(outputs) == {"decoder_token_ids", "decoder_padding_mask"}
    return outputs


def log_probs_of(inputs, row, name="default"):
    """The log-probabilities of the next token of a row, by a full forward pass."""

    @functools.cache
    def function(tokens):
        padded = np.zeros((1, TARGET_LENGTH), "int32")
        padded[0, : len(tokens)] = tokens
        mask = (np.arange(TARGET_LENGTH) < len(tokens))[None].astype("int32")
        batch = rows(inputs, row)
        batch |= {"decoder_token_ids": padded, "decoder_padding_mask": mask}
        logits = full_pass(name)(batch)[0, len(tokens) - 1].astype("float64")
        shifted = logits - logits.max()
        return shifted - np.log(np.exp(shifted).sum())

    return function


def greedy(inputs, row, name="default"):
    """The most probable next token, again and again. Stop tokens of a prompt do not stop."""
    length = int(inputs["decoder_padding_mask"][row].sum())
    tokens = inputs["decoder_token_ids"][row, :length].tolist()
    function = log_probs_of(inputs, row, name)
    while len(tokens) < TARGET_LENGTH:
        tokens.append(int(np.argmax(function(tuple(tokens)))))
        if tokens[-1] in STOPS:
            break
    return tokens


def tokens_of(outputs):
    """The tokens of each target. Padding is at the end."""
    mask = np.asarray(outputs["decoder_padding_mask"]).astype(bool)
    assert (np.diff(mask.astype(int), axis=1) <= 0).all()
    pairs = zip(outputs["decoder_token_ids"], mask, strict=True)
    return [row[row_mask].tolist() for row, row_mask in pairs]


# === Numbers ===


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in OF_LOGITS else any_backend) for name in SPECIFICATIONS],
)
def test_greedy_is_the_most_probable_token_of_full_passes(rng, name):
    inputs = prompts(random_inputs(rng, 3), (1, 4, 3))
    inputs["decoder_token_ids"][2, 1] = STOPS[0]
    found = tokens_of(generate(task_of(name), inputs))
    assert found == [greedy(inputs, row, name) for row in range(3)]
    assert len({tuple(tokens) for tokens in found}) == 3


@any_backend
def test_every_stop_token_ends_a_target(rng):
    inputs = prompts(random_inputs(rng, 7))
    found = tokens_of(generate(task_of(), inputs))
    assert found == [greedy(inputs, row) for row in range(7)]
    # Some rows end early, and some do not.
    assert min(map(len, found)) < TARGET_LENGTH == max(map(len, found))
    outputs = generate(task_of(), inputs, stop_token_ids=None)
    assert {len(tokens) for tokens in tokens_of(outputs)} == {TARGET_LENGTH}
    assert tokens_of(generate(task_of(), inputs, stop_token_ids=())) == tokens_of(outputs)


def test_beams_are_those_of_full_passes(rng):
    inputs = prompts(random_inputs(rng, 3), (2, 1, 4))
    found = tokens_of(generate(task_of(), inputs, BeamSearchSampler(3, 1.0)))
    for row, length in enumerate((2, 1, 4)):
        function = log_probs_of(inputs, row)
        prompt = inputs["decoder_token_ids"][row, :length]
        _, expected = beam_search(function, prompt, TARGET_LENGTH, 3, 1.0, STOPS)[0]
        assert found[row] == list(expected)


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(None, marks=any_backend("tensorflow")),
        pytest.param("mixed_bfloat16", marks=any_backend),
    ],
)
def test_compiled_and_eager_generation_agree(rng, dtype):
    task = tiny_task(num_layers=1, dtype=dtype)
    inputs = prompts(random_inputs(rng))
    found = []
    for run_eagerly in (False, True):
        task.compile(sampler=BeamSearchSampler(3), run_eagerly=run_eagerly)
        found.append(tokens_of(task.generate(inputs, stop_token_ids=STOPS)))
    assert found[0] == found[1]


def watch(monkeypatch, *places):
    """The positional and keyword arguments of each call of these methods, as they come."""
    calls = []

    def watched(function):
        def call(*args, **kwargs):
            calls.append((args, kwargs))
            return function(*args, **kwargs)

        return call

    for owner, method in places:
        monkeypatch.setattr(owner, method, watched(getattr(owner, method)))
    return calls


@any_backend
def test_the_source_is_read_once_and_shared_by_its_beams(rng, monkeypatch):
    """The sampler repeats the memory of the targets for its beams. It never sees the source."""
    backbone = task_of().backbone
    attentions = [block.cross_attention for block in backbone.decoder.transformer_layers]
    encoded = watch(monkeypatch, (backbone.encoder, "call"))
    projected = watch(monkeypatch, *((attention, "project_keys") for attention in attentions))
    repeats = watch(monkeypatch, (beam_search_sampler, "repeat_cache"))
    calls = watch(monkeypatch, *((attention, "call") for attention in attentions))
    generate(task_of(), prompts(random_inputs(rng)), BeamSearchSampler(4), None)
    assert list(map(len, (encoded, projected, calls))) == [1, 2, 2 * (TARGET_LENGTH - 1)]
    cache = repeats[0][0][0]
    assert {tensor.shape[2] for tensor in tree.flatten(cache)} == {TARGET_LENGTH}
    batches = {(len(args[0]), *map(len, kwargs["projected_keys"])) for args, kwargs in calls}
    assert batches == {(8, 2, 2)}


@any_backend
def test_the_embeddings_are_transposed_once(rng, monkeypatch):
    """Their layer would transpose them in each step, which XLA does not move out of the loop."""
    task = tiny_task(num_layers=1)
    calls = watch(monkeypatch, (task.backbone.token_embedding, "call"))
    kernels = watch(monkeypatch, (task, "_output_kernel"))
    generate(task, prompts(random_inputs(rng)), BeamSearchSampler(3), None)
    assert (len(calls), len(kernels)) == (TARGET_LENGTH, 1)
    assert not any(kwargs.get("reverse") for _, kwargs in calls)


@any_backend
def test_logits_have_the_dtype_of_a_full_pass(rng, monkeypatch):
    task = tiny_task(num_layers=1, dtype="mixed_bfloat16")
    inputs = prompts(random_inputs(rng))
    step, dtypes = task._next_token, set()

    def next_token(*args, **kwargs):
        logits, *others = step(*args, **kwargs)
        dtypes.add(logits.dtype)
        return logits, *others

    monkeypatch.setattr(task, "_next_token", next_token)
    task.compile(sampler="greedy", run_eagerly=True)
    task.generate(inputs, stop_token_ids=None)
    assert dtypes == {task(inputs).dtype}


@pytest.mark.usefixtures("compiled_steps")
def test_compiled_generation_follows_changes(rng):
    """Of weights and adapters. Changes of dtypes have the same path, so one backend is enough."""
    task = tiny_task(num_layers=1)
    inputs = prompts(random_inputs(rng, 5))
    found = [generate(task, inputs, stop_token_ids=None)["decoder_token_ids"]]
    changes = ("weights", "adapters", "dtypes")
    for change in changes if keras.backend.backend() == "torch" else changes[:2]:
        if change == "weights":
            for weight in task.weights:
                weight.assign(weight + rng.normal(scale=0.3, size=weight.shape))
        elif change == "adapters":
            task.backbone.enable_lora(2)
            for weight in task.weights:
                if "lora_kernel" in weight.path:
                    weight.assign(rng.normal(size=weight.shape))
        else:
            task.backbone.quantize("int4")
        found.append(task.generate(inputs, stop_token_ids=None)["decoder_token_ids"])
        assert (found[-1] != found[-2]).any(), change
        targets = {"decoder_token_ids": found[-1], "decoder_padding_mask": np.ones_like(found[-1])}
        logits = to_numpy(compiled(functools.partial(task, {**inputs, **targets}))())
        np.testing.assert_array_equal(found[-1][:, 1:], logits.argmax(-1)[:, :-1])


# === Texts ===


@pytest.fixture(scope="module")
def translator(proto):
    task = tiny_translator(proto)
    task.compile(sampler="greedy")
    return task


@any_backend
def test_texts_and_prompts_in_any_form_and_in_batches(translator, capsys):
    expected = translator.generate(SOURCES)
    assert [type(text) for text in expected] == [str] * 5
    assert len(set(expected)) > 3
    generate = functools.partial(translator.generate, batch_size=2)
    sources, tokens_of = {"encoder_text": SOURCES}, translator.preprocessor.rows_of_tokens
    for texts in (np.array(SOURCES), sources, {**sources, "decoder_text": [""] * 5}):
        assert tokens_of(texts) == tokens_of(SOURCES)
    for text in (SOURCES[2], {"encoder_text": SOURCES[2]}):
        assert generate(text) == expected[2]
    inputs = {"encoder_text": SOURCES[:2], "decoder_text": ["der", "ein langsamer"]}
    one = {name: texts[1] for name, texts in inputs.items()}
    prompted = translator.generate(inputs)
    for text, prompt in zip(prompted, inputs["decoder_text"], strict=True):
        assert text.startswith(prompt)
    # The dictionaries of the user do not change.
    for _ in range(2):
        assert (generate(inputs), generate(one)) == (prompted, prompted[1])
    assert capsys.readouterr().out == ""
    assert generate(SOURCES, verbose=1) == expected
    assert "5/5" in capsys.readouterr().out


@any_backend
def test_lengths_and_ends_of_texts(translator, monkeypatch):
    """Each argument reaches every batch."""
    calls = watch(monkeypatch, (translator.preprocessor, "generate_postprocess"))

    def generated(**arguments):
        calls.clear()
        translator.generate(SOURCES, batch_size=2, **arguments)
        assert len(calls) == 3
        names = ("decoder_token_ids", "decoder_padding_mask")
        return [np.concatenate([to_numpy(args[0][n]) for args, _ in calls]) for n in names]

    # The longest targets of the backbone have 71 tokens. Here each token ends one.
    for max_length in (3, 71):
        assert generated(max_length=max_length, stop_token_ids=range(61))[1].shape[1] == max_length
    tokens, mask = generated(stop_token_ids=None)
    assert mask.all()
    end = translator.preprocessor.tokenizer.end_token_id
    default = generated()[1]
    assert default.shape == (5, 17)
    assert np.array_equal(generated(stop_token_ids=(end,))[1], default)
    # Tokens that all rows have second end them there.
    stops = tuple({int(token) for token in tokens[:, 1]})
    assert (generated(stop_token_ids=stops)[1].sum(axis=1) == 2).all()
    assert not (default.sum(axis=1) == 2).all()


LONG = "the dog sees a fox " * 30


@any_backend
def test_long_sources_and_prompts_are_cut_on_request(translator, monkeypatch):
    calls = watch(monkeypatch, (translator.preprocessor, "generate_postprocess"))
    inputs = {"encoder_text": [SOURCES[1], LONG, SOURCES[3]], "decoder_text": ["der", LONG, "ein"]}
    found = translator.generate(inputs, batch_size=2, truncate=True)
    prompt = to_numpy(calls[0][0][0]["decoder_token_ids"])[0]
    # A start token, 15 tokens of the prompt, and one token that is generated.
    assert prompt[1:16].tolist() == translator.preprocessor.tokenizer(LONG)[:15].tolist()
    rows = translator.preprocessor.rows_of_tokens(inputs, truncate=True)
    assert [len(row) for row in rows["encoder_tokens"]][1] == 66
    for row in (0, 2):
        one = {name: texts[row] for name, texts in inputs.items()}
        assert found[row] == translator.generate(one)
    with pytest.raises(ValueError, match="0 tokens in row 0"):
        translator.generate([""], truncate=True)


@any_backend
def test_datasets_of_texts(translator):
    import tensorflow as tf

    expected = translator.generate(SOURCES[:3])
    data = tf.data.Dataset.from_tensor_slices(SOURCES[:3])
    for batches in (data, data.batch(2)):
        assert list(translator.generate(batches)) == expected
    long = tf.data.Dataset.from_tensors([LONG, SOURCES[0]])
    assert translator.generate(long, truncate=True)[1] == expected[0]
    assert translator.generate(tf.constant(SOURCES[:3]), batch_size=2) == expected


@any_backend
def test_batches_have_texts_of_similar_length(translator, monkeypatch):
    calls = watch(monkeypatch, (translator.preprocessor, "generate_preprocess"))
    translator.generate(SOURCES, batch_size=2)
    # The number of tokens, not of characters.
    tokens = translator.preprocessor.tokenizer(SOURCES)
    assert sorted(tokens, key=len) != translator.preprocessor.tokenizer(sorted(SOURCES, key=len))
    by_length = sorted(tokens, key=len, reverse=True)
    batches = [args[0]["encoder_tokens"] for args, _ in calls]
    assert batches == [by_length[:2], by_length[2:4], by_length[4:]]
