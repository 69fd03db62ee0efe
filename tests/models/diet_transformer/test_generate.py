"""`DietTransformerSeq2SeqLM.generate` against full forward passes, one row at a time."""

import functools

import keras_hub
import numpy as np
import pytest
from keras import ops, tree

from keras_diet.layers import BiasedMultiHeadAttention
from keras_diet.samplers import BeamSearchSampler
from keras_diet.samplers.beam_cache import BeamCache
from tests.helpers import to_numpy
from tests.models.diet_transformer.pairs import SOURCES
from tests.models.diet_transformer.tiny import (
    START,
    TARGET_LENGTH,
    prompts,
    random_inputs,
    rows,
    tiny_task,
    tiny_translator,
)
from tests.samplers.reference import beam_search
from tests.samplers.tables import compiled_loop

# Several, so that some sequences end early.
STOPS = (3, 6, 20)


any_backend = pytest.mark.any_backend


@functools.cache
def shared_task():
    """Generation does not change a task, so tests share one."""
    return tiny_task()


@functools.cache
def full_pass():
    """The logits of the shared task as a function of the inputs."""
    task = shared_task()
    names = list(task.input)
    logits = compiled_loop(lambda *arrays: task(dict(zip(names, arrays, strict=True))))
    return lambda inputs: to_numpy(logits(*(inputs[name] for name in names)))


def generate(task, inputs, sampler="greedy", stop_token_ids=STOPS):
    task.compile(sampler=sampler)
    outputs = task.generate(inputs, stop_token_ids=stop_token_ids)
    assert set(outputs) == {"decoder_token_ids", "decoder_padding_mask"}
    return outputs


def log_probs_of(inputs, row):
    """The log-probabilities of the next token of a row, by a full forward pass."""

    @functools.cache
    def function(tokens):
        padded = np.zeros((1, TARGET_LENGTH), "int32")
        padded[0, : len(tokens)] = tokens
        mask = (np.arange(TARGET_LENGTH) < len(tokens))[None].astype("int32")
        batch = rows(inputs, row)
        batch |= {"decoder_token_ids": padded, "decoder_padding_mask": mask}
        logits = full_pass()(batch)[0, len(tokens) - 1].astype("float64")
        shifted = logits - logits.max()
        return shifted - np.log(np.exp(shifted).sum())

    return function


def greedy(inputs, row, stops=STOPS):
    """The most probable next token, again and again."""
    length = int(inputs["decoder_padding_mask"][row].sum())
    tokens = inputs["decoder_token_ids"][row, :length].tolist()
    function = log_probs_of(inputs, row)
    while len(tokens) < TARGET_LENGTH:
        tokens.append(int(np.argmax(function(tuple(tokens)))))
        if tokens[-1] in stops:
            break
    return tokens


def tokens_of(outputs, row):
    mask = outputs["decoder_padding_mask"][row].astype(bool)
    assert (np.diff(mask.astype(int)) <= 0).all(), "padding is at the end"
    return outputs["decoder_token_ids"][row][mask].tolist()


@pytest.mark.parametrize(
    "lengths", [pytest.param((1, 1, 1), marks=any_backend), (1, 4, 2)], ids=str
)
def test_greedy_is_the_most_probable_token_of_full_passes(rng, lengths):
    inputs = prompts(random_inputs(rng, 3), lengths)
    outputs = generate(shared_task(), inputs)
    found = [tokens_of(outputs, row) for row in range(3)]
    assert found == [greedy(inputs, row) for row in range(3)]
    assert len({tuple(tokens) for tokens in found}) == 3
    # One of the rows ends early, and one does not.
    assert len({len(tokens) for tokens in found}) > 1


@pytest.mark.parametrize("alpha", [pytest.param(0.0, marks=any_backend), 1.0])
def test_beams_are_those_of_full_passes(rng, alpha):
    inputs = prompts(random_inputs(rng, 2))
    outputs = generate(shared_task(), inputs, BeamSearchSampler(3, alpha))
    for row in range(2):
        function = log_probs_of(inputs, row)
        _, expected = beam_search(function, (START,), TARGET_LENGTH, 3, alpha, STOPS)[0]
        assert tokens_of(outputs, row) == list(expected)


@pytest.mark.parametrize(
    "sampler",
    [
        *(pytest.param(name, marks=any_backend) for name in ("greedy", "beam")),
        pytest.param(BeamSearchSampler(3), id="ours"),
    ],
)
def test_a_row_alone_and_in_company(rng, sampler):
    """`"beam"` counts tokens after the end, so it gets no stop tokens."""
    task = shared_task()
    inputs = prompts(random_inputs(rng, 3), (2, 1, 4))
    stops = None if sampler == "beam" else STOPS
    together = generate(task, inputs, sampler, stops)
    for row in range(3):
        alone = generate(task, rows(inputs, row), sampler, stops)
        assert tokens_of(alone, 0) == tokens_of(together, row)


@pytest.mark.parametrize(
    "name",
    ["top_k", "beam", *(pytest.param(name, marks=any_backend) for name in ("top_p", "random"))],
)
def test_samplers_of_kerashub_by_name(rng, name):
    task = shared_task()
    inputs = prompts(random_inputs(rng), (1, 3))
    outputs = generate(task, inputs, name)
    token_ids = outputs["decoder_token_ids"]
    assert token_ids.shape == (2, TARGET_LENGTH)
    assert token_ids[1, :3].tolist() == inputs["decoder_token_ids"][1, :3].tolist()
    assert (token_ids > 0).any(axis=1).all()


@any_backend
def test_without_stop_tokens_targets_are_full(rng):
    inputs = prompts(random_inputs(rng))
    for sampler in ("greedy", BeamSearchSampler(2)):
        outputs = generate(shared_task(), inputs, sampler, None)
        assert outputs["decoder_padding_mask"].all()
        assert {len(tokens_of(outputs, row)) for row in range(2)} == {TARGET_LENGTH}


@any_backend
def test_stop_tokens_in_a_prompt_do_not_stop(rng):
    inputs = prompts(random_inputs(rng), (3, 3))
    inputs["decoder_token_ids"][:, 1] = STOPS[0]
    outputs = generate(shared_task(), inputs)
    for row in range(2):
        assert tokens_of(outputs, row) == greedy(inputs, row)


@any_backend
def test_a_target_without_room_stays_as_it_is(rng):
    inputs = prompts(random_inputs(rng), (TARGET_LENGTH, TARGET_LENGTH))
    for sampler in ("greedy", BeamSearchSampler(2)):
        outputs = generate(shared_task(), inputs, sampler)
        assert (outputs["decoder_token_ids"] == inputs["decoder_token_ids"]).all()


@any_backend
def test_the_encoder_runs_once(rng, monkeypatch):
    task = shared_task()
    calls = {"encoder": 0, "decoder": 0, "keys of the source": 0}

    def count(owner, attribute, name):
        function = getattr(owner, attribute)

        def counted(*args, **kwargs):
            calls[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, attribute, counted)

    count(task.backbone.encoder, "call", "encoder")
    count(task.backbone.decoder, "call", "decoder")
    for block in task.backbone.decoder.transformer_layers:
        count(block.cross_attention, "project_keys", "keys of the source")
    generate(task, prompts(random_inputs(rng)), stop_token_ids=None)
    assert calls == {"encoder": 1, "decoder": TARGET_LENGTH - 1, "keys of the source": 2}


@any_backend
def test_the_beams_of_a_row_share_its_source(rng, monkeypatch):
    """The sampler repeats the memory of the targets for its beams. It never sees the source."""
    lengths, batches = set(), []

    def repeat(self, cache, batch_size):
        lengths.update(tensor.shape[2] for tensor in tree.flatten(cache))
        return original_repeat(self, cache, batch_size)

    def call(self, query, *args, projected_keys, **kwargs):
        batches.append((len(query), *(len(tensor) for tensor in projected_keys)))
        return original_call(self, query, *args, projected_keys=projected_keys, **kwargs)

    original_repeat, original_call = BeamCache.repeat, BiasedMultiHeadAttention.call
    monkeypatch.setattr(BeamCache, "repeat", repeat)
    generate_twice = functools.partial(generate, shared_task(), prompts(random_inputs(rng, 2)))
    expected = generate_twice(BeamSearchSampler(4))
    for block in shared_task().backbone.decoder.transformer_layers:
        attention = block.cross_attention
        monkeypatch.setattr(attention, "call", functools.partial(call, attention))
    found = generate_twice(BeamSearchSampler(4))
    assert lengths == {TARGET_LENGTH}
    assert set(batches) == {(8, 2, 2)}
    assert np.array_equal(found["decoder_token_ids"], expected["decoder_token_ids"])


@pytest.mark.usefixtures("compiled_steps")
def test_compiled_and_eager_generation_agree(rng):
    task = tiny_task(num_layers=1)
    inputs = prompts(random_inputs(rng))
    found = []
    for run_eagerly in (False, True):
        task.compile(sampler=BeamSearchSampler(3), run_eagerly=run_eagerly)
        assert task.run_eagerly == run_eagerly
        outputs = task.generate(inputs, stop_token_ids=STOPS)
        found.append([tokens_of(outputs, row) for row in range(2)])
    assert found[0] == found[1]


@pytest.mark.usefixtures("compiled_steps")
def test_compiled_generation_follows_changes(rng):
    """Of weights, adapters and dtypes."""
    task = tiny_task(num_layers=1)
    inputs = prompts(random_inputs(rng, 5))
    found = [generate(task, inputs, stop_token_ids=None)["decoder_token_ids"]]
    for change in ("weights", "adapters", "dtypes"):
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


@any_backend
def test_prompts_of_two_calls_of_other_sizes(rng):
    for batch_size, source_length in ((1, 3), (3, 11)):
        inputs = prompts(random_inputs(rng, batch_size, source_length))
        outputs = generate(shared_task(), inputs)
        assert tokens_of(outputs, 0) == greedy(inputs, 0)


# === Texts ===


@pytest.fixture
def translator(proto):
    task = tiny_translator(proto)
    task.compile(sampler=BeamSearchSampler(2))
    return task


@any_backend
def test_kinds_of_texts(translator):
    expected = translator.generate(SOURCES)
    assert isinstance(expected, list)
    assert [type(text) for text in expected] == [str] * 5
    assert len(set(expected)) > 3
    assert translator.generate(SOURCES[2]) == expected[2]
    assert translator.generate(np.array(SOURCES)) == expected
    assert translator.generate({"encoder_text": SOURCES, "decoder_text": [""] * 5}) == expected
    assert translator.generate({"encoder_text": SOURCES}) == expected
    assert translator.generate({"encoder_text": SOURCES[2]}) == expected[2]
    by_tokens = translator.preprocessor.generate_preprocess(SOURCES)
    outputs = translator.generate_step(
        {name: ops.convert_to_tensor(value) for name, value in by_tokens.items()},
        (translator.preprocessor.tokenizer.end_token_id,),
    )
    assert translator.preprocessor.generate_postprocess(outputs) == expected


@any_backend
def test_texts_with_prompts(translator):
    inputs = {"encoder_text": SOURCES[:2], "decoder_text": ["der", "ein langsamer"]}
    copy = {name: list(texts) for name, texts in inputs.items()}
    found = translator.generate(inputs)
    for text, prompt in zip(found, copy["decoder_text"], strict=True):
        assert text.startswith(prompt)
    one = {"encoder_text": SOURCES[1], "decoder_text": "ein langsamer"}
    assert translator.generate(one) == found[1]
    # The dictionaries of the user do not change.
    assert one == {"encoder_text": SOURCES[1], "decoder_text": "ein langsamer"}
    assert inputs == copy
    assert translator.generate(one) == found[1]


@any_backend
@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_batches_keep_the_order(translator, batch_size, capsys):
    expected = translator.generate(SOURCES)
    assert translator.generate(SOURCES, batch_size=batch_size) == expected
    assert capsys.readouterr().out == ""
    if batch_size == 2:
        assert translator.generate(np.array(SOURCES), batch_size=2, verbose=1) == expected
        assert "5/5" in capsys.readouterr().out
    assert translator.generate([], batch_size=batch_size) == []
    prompts = {"encoder_text": SOURCES, "decoder_text": ["der", "", "die Katze", "ein", ""]}
    expected = translator.generate(prompts)
    assert translator.generate(prompts, batch_size=batch_size) == expected


@any_backend
def test_batches_have_texts_of_similar_length(translator, monkeypatch):
    batches = []
    preprocess = translator.preprocessor.generate_preprocess

    def watched(x, **kwargs):
        batches.append(list(x["encoder_text"]))
        return preprocess(x, **kwargs)

    monkeypatch.setattr(translator.preprocessor, "generate_preprocess", watched)
    translator.generate(SOURCES, batch_size=2)
    # The number of tokens, not of characters.
    count = {text: len(translator.preprocessor.tokenizer(text)) for text in SOURCES}
    assert sorted(SOURCES, key=len) != sorted(SOURCES, key=count.get)
    by_length = sorted(SOURCES, key=count.get, reverse=True)
    assert batches == [by_length[:2], by_length[2:4], by_length[4:]]


@any_backend
def test_length_and_end_of_texts(translator, monkeypatch):
    tokenizer = translator.preprocessor.tokenizer
    outputs = []
    postprocess = translator.preprocessor.generate_postprocess
    monkeypatch.setattr(
        translator.preprocessor,
        "generate_postprocess",
        lambda x: outputs.append(x) or postprocess(x),
    )
    # The longest targets of the backbone have 71 tokens.
    for max_length in (3, 9, None, 71):
        translator.generate(SOURCES[:2], max_length=max_length)
    lengths = [to_numpy(output["decoder_token_ids"]).shape[1] for output in outputs]
    assert lengths == [3, 9, 17, 71]
    end = tokenizer.end_token_id
    ends = {}
    for stops in (None, "auto", (end,), (int(to_numpy(outputs[2]["decoder_token_ids"])[0, 2]),)):
        translator.generate(SOURCES[:2], stop_token_ids=stops)
        ends[stops] = to_numpy(outputs[-1]["decoder_padding_mask"]).sum(axis=1).tolist()
    assert ends[None] == [17, 17]
    assert ends["auto"] == ends[(end,)]
    assert min(list(ends.values())[-1]) <= 3


@any_backend
def test_length_buckets_change_no_translation(proto):
    full = tiny_translator(proto)
    bucketed = tiny_translator(proto, length_buckets=(9, 31))
    for task in (full, bucketed):
        task.compile(sampler="greedy")
    assert bucketed.generate(SOURCES, batch_size=2) == full.generate(SOURCES)


@pytest.mark.any_backend("tensorflow")
def test_datasets_of_texts(translator):
    import tensorflow as tf

    expected = translator.generate(SOURCES[:3])
    data = tf.data.Dataset.from_tensor_slices(SOURCES[:3]).batch(2)
    assert list(translator.generate(data)) == expected
    assert translator.generate(tf.constant(SOURCES[:3]), batch_size=2) == expected


@any_backend
def test_sampler_of_kerashub_as_an_object(translator):
    translator.compile(sampler=keras_hub.samplers.TopKSampler(k=1, seed=2))
    by_top_one = translator.generate(SOURCES)
    translator.compile(sampler="greedy")
    assert translator.generate(SOURCES) == by_top_one
    translator.compile()
    assert isinstance(translator.sampler, BeamSearchSampler)
    config = translator.sampler.get_config()
    assert config == {"num_beams": 10, "length_penalty": 0.6, "return_all_beams": False}


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize(
    "dtype", ["mixed_bfloat16", pytest.param("mixed_float16", marks=any_backend)]
)
def test_half_precision(rng, dtype):
    task = tiny_task(num_layers=1, dtype=dtype)
    outputs = generate(task, prompts(random_inputs(rng)), BeamSearchSampler(2))
    assert outputs["decoder_token_ids"].shape == (2, TARGET_LENGTH)
    assert (outputs["decoder_token_ids"] < 31).all()
