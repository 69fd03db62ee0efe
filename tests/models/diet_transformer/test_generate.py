"""`DietTransformerSeq2SeqLM.generate` against full forward passes, one row at a time."""

import functools

import numpy as np
import pytest
from keras import tree

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

any_backend = pytest.mark.any_backend
# Several, so that some sequences end early.
STOPS = (3, 6, 20)
SPECIFICATIONS = {
    "default": {},
    "diet_abs": {"position_encoding": "diet_abs", "rank": 7, "normalize_first": False},
    "not across": {"position_encoding": "shaw", "cross_attention_positions": False},
    "diet_abs_input": {"position_encoding": "diet_abs_input", "sharing": "none"},
    "t5": {"position_encoding": "t5", "sharing": "head-wise"},
    "rotary": {"position_encoding": "rotary", "hidden_dim": 18},
    "none": {"position_encoding": "none"},
}


@functools.cache
def task_of(name="default"):
    """Generation does not change a task, so tests share one."""
    return tiny_task(**SPECIFICATIONS[name])


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
    [pytest.param(name, marks=[] if name == "default" else any_backend) for name in SPECIFICATIONS],
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
    for sampler in ("greedy", BeamSearchSampler(2)):
        outputs = generate(task_of(), inputs, sampler, None)
        assert {len(tokens) for tokens in tokens_of(outputs)} == {TARGET_LENGTH}
        assert tokens_of(generate(task_of(), inputs, sampler, ())) == tokens_of(outputs)


@pytest.mark.parametrize("alpha", [pytest.param(0.0, marks=any_backend), 1.0])
def test_beams_are_those_of_full_passes(rng, alpha):
    inputs = prompts(random_inputs(rng, 2))
    found = tokens_of(generate(task_of(), inputs, BeamSearchSampler(3, alpha)))
    for row in range(2):
        function = log_probs_of(inputs, row)
        _, expected = beam_search(function, (START,), TARGET_LENGTH, 3, alpha, STOPS)[0]
        assert found[row] == list(expected)


@any_backend
@pytest.mark.parametrize("sampler", ["greedy", "beam", BeamSearchSampler(3)])
def test_a_row_alone_and_in_company(rng, sampler):
    """`"beam"` counts tokens after the end, so it gets no stop tokens."""
    inputs = prompts(random_inputs(rng, 3), (2, 1, 4))
    stops = None if sampler == "beam" else STOPS
    together = tokens_of(generate(task_of(), inputs, sampler, stops))
    alone = [generate(task_of(), rows(inputs, row), sampler, stops) for row in range(3)]
    assert [tokens_of(outputs)[0] for outputs in alone] == together


@any_backend
@pytest.mark.parametrize("sampler", ["top_k", "top_p", "random", BeamSearchSampler(2)])
def test_samplers_keep_prompts(rng, sampler):
    inputs = prompts(random_inputs(rng), (1, 3))
    outputs = generate(task_of(), inputs, sampler)
    given = inputs["decoder_padding_mask"].astype(bool)
    assert (outputs["decoder_token_ids"][given] == inputs["decoder_token_ids"][given]).all()
    full = prompts(random_inputs(rng), (TARGET_LENGTH, TARGET_LENGTH))
    outputs = generate(task_of(), full, sampler)
    assert (outputs["decoder_token_ids"] == full["decoder_token_ids"]).all()


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize(
    "dtype",
    [None, *(pytest.param(name, marks=any_backend) for name in ("mixed_bfloat16", "float16"))],
)
def test_compiled_and_eager_generation_agree(rng, dtype):
    task = tiny_task(num_layers=1, dtype=dtype)
    inputs = prompts(random_inputs(rng))
    found = []
    for run_eagerly in (False, True):
        task.compile(sampler=BeamSearchSampler(3), run_eagerly=run_eagerly)
        found.append(tokens_of(task.generate(inputs, stop_token_ids=STOPS)))
    assert found[0] == found[1]


@any_backend
def test_the_encoder_runs_once(rng, monkeypatch):
    task = task_of()
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
    generate_twice = functools.partial(generate, task_of(), prompts(random_inputs(rng, 2)))
    expected = generate_twice(BeamSearchSampler(4))
    for block in task_of().backbone.decoder.transformer_layers:
        attention = block.cross_attention
        monkeypatch.setattr(attention, "call", functools.partial(call, attention))
    found = generate_twice(BeamSearchSampler(4))
    assert lengths == {TARGET_LENGTH}
    assert set(batches) == {(8, 2, 2)}
    assert np.array_equal(found["decoder_token_ids"], expected["decoder_token_ids"])


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
            task.compile()
        else:
            task.quantize("int4")
        found.append(task.generate(inputs, stop_token_ids=None)["decoder_token_ids"])
        assert (found[-1] != found[-2]).any(), change


# === Texts ===


@pytest.fixture
def translator(proto):
    task = tiny_translator(proto)
    task.compile(sampler=BeamSearchSampler(2))
    return task


@any_backend
def test_kinds_of_texts(translator):
    expected = translator.generate(SOURCES)
    assert [type(text) for text in expected] == [str] * 5
    assert len(set(expected)) > 3
    assert translator.generate(SOURCES[2]) == expected[2]
    assert translator.generate(SOURCES[2], batch_size=3) == expected[2]
    assert translator.generate(np.array(SOURCES)) == expected
    assert translator.generate({"encoder_text": SOURCES, "decoder_text": [""] * 5}) == expected
    assert translator.generate({"encoder_text": SOURCES}) == expected
    assert translator.generate({"encoder_text": SOURCES[2]}) == expected[2]
    by_tokens = translator.preprocessor.generate_preprocess(SOURCES)
    end = translator.preprocessor.tokenizer.end_token_id
    outputs = translator.generate_step(by_tokens, (end,))
    assert translator.preprocessor.generate_postprocess(outputs) == expected


@any_backend
def test_prompts_of_texts(translator):
    one = {"encoder_text": SOURCES[1], "decoder_text": "ein langsamer"}
    inputs = {"encoder_text": SOURCES[:2], "decoder_text": ["der", "ein langsamer"]}
    for _ in range(2):
        # The dictionaries of the user do not change.
        found = translator.generate(inputs)
        assert found[0].startswith("der")
        assert found[1].startswith("ein langsamer")
        assert translator.generate(one) == found[1]
    assert isinstance(one["encoder_text"], str)
    assert translator.generate(inputs, batch_size=1) == found


@any_backend
@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_batches_keep_the_order(translator, batch_size, capsys):
    expected = translator.generate(SOURCES)
    assert translator.generate(SOURCES, batch_size=batch_size) == expected
    assert capsys.readouterr().out == ""
    assert translator.generate(np.array(SOURCES), batch_size=batch_size, verbose=1) == expected
    assert "5/5" in capsys.readouterr().out


@any_backend
@pytest.mark.parametrize("batch_size", [None, 2])
def test_lengths_and_ends_of_texts(translator, monkeypatch, batch_size):
    """Each argument reaches every batch."""
    outputs = []
    postprocess = translator.preprocessor.generate_postprocess
    watched = lambda x: outputs.append(tree.map_structure(to_numpy, x)) or postprocess(x)  # noqa: E731
    monkeypatch.setattr(translator.preprocessor, "generate_postprocess", watched)

    def masks(**arguments):
        outputs.clear()
        translator.generate(SOURCES, batch_size=batch_size, **arguments)
        assert len(outputs) == (1 if batch_size is None else 3)
        return np.concatenate([output["decoder_padding_mask"] for output in outputs])

    # The longest targets of the backbone have 71 tokens.
    for max_length in (3, 9, None, 71):
        assert masks(max_length=max_length).shape == (5, max_length or 17)
    assert masks(stop_token_ids=None).all()
    tokens = np.concatenate([output["decoder_token_ids"] for output in outputs])
    end = translator.preprocessor.tokenizer.end_token_id
    assert np.array_equal(masks(stop_token_ids=(end,)), masks())
    # Tokens that all rows have second end them there.
    stops = tuple({int(token) for token in tokens[:, 1]})
    assert (masks(stop_token_ids=stops).sum(axis=1) == 2).all()
    assert not (masks().sum(axis=1) == 2).all()


@pytest.mark.any_backend("tensorflow")
def test_datasets_of_texts(translator):
    import tensorflow as tf

    expected = translator.generate(SOURCES[:3])
    data = tf.data.Dataset.from_tensor_slices(SOURCES[:3]).batch(2)
    assert list(translator.generate(data)) == expected
    assert translator.generate(tf.constant(SOURCES[:3]), batch_size=2) == expected


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
def test_length_buckets_change_no_translation(proto):
    full = tiny_translator(proto)
    bucketed = tiny_translator(proto, length_buckets=(9, 31))
    for task in (full, bucketed):
        task.compile(sampler="greedy")
    assert bucketed.generate(SOURCES, batch_size=2) == full.generate(SOURCES)
