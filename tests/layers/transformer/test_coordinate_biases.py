"""Biases of coordinates, alone and as the positions of `DietEncoder`."""

import keras
import numpy as np
import pytest

from keras_diet import layers
from keras_diet.layers import CoordinateBias, DietDecoder, DietEncoder, cache_positions
from keras_diet.layers.attention import plan
from tests.helpers import (
    assert_close,
    check_layer,
    gradients,
    randomize,
    to_numpy,
    weighted_sum,
)
from tests.layers import diet_encoders
from tests.layers.bias_layers import expected_scores
from tests.layers.diet_encoders import BATCH, HIDDEN, LENGTH, NUM_HEADS, VALID, make_encoder

any_backend = pytest.mark.any_backend
# Fewer places than tokens and more, in any order, and the smallest and the largest of each axis.
SIZES = (3, 11)
PLACES = np.array(
    [
        [[2, 10], [0, 3], [1, 0], [2, 3], [0, 8]],
        [[1, 7], [1, 7], [2, 0], [0, 10], [1, 1]],
    ],
    dtype="int32",
)


def make_bias(rng=None, **kwargs):
    """A bias with another class on each axis, the second of which shares its heads."""
    biases = [
        layers.RelativePositionBias(NUM_HEADS, max_length=SIZES[0]),
        layers.BucketedRelativePositionBias(
            NUM_HEADS, num_buckets=6, max_distance=5, share_heads=True, max_length=SIZES[1]
        ),
    ]
    bias = CoordinateBias(biases, **kwargs)
    bias.build()
    return bias if rng is None else randomize(bias, rng, scale=0.6)


def expected_bias(bias, query, key=None):
    """The sum over axes of the scores by the papers, one pair after another."""
    key = query if key is None else key
    scores = np.zeros((len(query), bias.num_heads, query.shape[1], key.shape[1]))
    for axis, of_axis in enumerate(bias.biases):
        table = expected_scores(of_axis, of_axis.max_length)
        for b, h, i, j in np.ndindex(scores.shape):
            scores[b, h, i, j] += table[0, h, query[b, i, axis], key[b, j, axis]]
    return scores


def test_equals_reference(rng):
    bias, key = make_bias(rng), PLACES[:, ::2]
    assert_close(bias(PLACES), expected_bias(bias, PLACES), 2e-5)
    expected = expected_bias(bias, PLACES, key)
    assert_close(bias(PLACES, key), expected, 2e-5)
    assert_close(bias.rows(PLACES[:, 1:3], key, 1), expected[:, :, 1:3], 2e-5)


def test_the_layer():
    check_layer(make_bias(name="places"), PLACES, PLACES[:, ::2])
    assert make_bias().compute_output_shape((2, 5, 2), (2, 7, 2)) == (2, NUM_HEADS, 5, 7)


# === Papers ===


@any_backend
def test_equals_swin_of_hugging_face(rng):
    """One axis with the coordinate `y (2 W - 1) + x` has a score for each pair of distances."""
    import torch

    pytest.importorskip("transformers")
    from transformers.models.swin.modeling_swin import SwinRelativePositionBias

    theirs = SwinRelativePositionBias(NUM_HEADS, (3, 4))
    window = layers.RelativePositionBias(NUM_HEADS, max_length=2 * 7 + 4)
    bias = CoordinateBias([window])
    bias.build()
    table = to_numpy(randomize(bias, rng).weights[0])
    theirs.relative_position_bias_table.data.copy_(torch.tensor(table))
    rows, columns = np.divmod(np.arange(12), 4)
    coordinates = (rows * 7 + columns)[None, :, None]
    assert_close(bias(coordinates), theirs().detach().numpy(), 1e-6)


# === In an encoder ===


@any_backend
@pytest.mark.parametrize("implementation", ["auto", "blockwise"])
@pytest.mark.parametrize("sharing", ["none", "layer-wise"])
def test_the_index_as_a_coordinate_is_the_bias_itself(rng, monkeypatch, sharing, implementation):
    """Also with several documents in a sequence, whose distances are those of the sequence.

    One row of coordinates is the same for all examples.
    """
    monkeypatch.setattr(plan, "BLOCK_SIZE", 2)
    x, ids = diet_encoders.make_inputs(rng)[0], np.array([[1, 1, 2, 2, 2], [3, 4, 4, 0, 0]])
    bias, index = layers.RelativePositionBias(NUM_HEADS, max_length=LENGTH), np.arange(LENGTH)
    encoder, other = (
        make_encoder(
            np.random.default_rng(3),
            position_encoding=each,
            sharing=sharing,
            attention_windows=(None, 3),
            attention_implementation=implementation,
        )
        for each in (bias, CoordinateBias([bias]))
    )
    assert len(other.position_biases) == (1 if sharing == "layer-wise" else 2)
    for options in ({}, {"document_ids": ids}):
        expected = encoder(x, padding_mask=VALID, **options)
        options |= {"coordinates": index[None, :, None].astype("int32")}
        found = other(x, padding_mask=VALID, **options)
        assert_close(to_numpy(found)[VALID], to_numpy(expected)[VALID])


def test_gradients(rng):
    """Scores are linear in each weight. So its gradient has the scores that it has by itself."""
    bias, random = make_bias(rng), rng.normal(size=(BATCH, NUM_HEADS, LENGTH, LENGTH))
    found = gradients(lambda: weighted_sum(bias(PLACES), random), bias.weights)
    bias.set_weights([np.zeros(weight.shape) for weight in bias.weights])
    for weight, gradient in zip(bias.weights, found, strict=True):
        expected = np.zeros(gradient.shape)
        for index in np.ndindex(gradient.shape):
            one = np.zeros(gradient.shape)
            one[index] = 1
            weight.assign(one)
            expected[index] = np.sum(random * expected_bias(bias, PLACES))
        weight.assign(np.zeros(gradient.shape))
        assert_close(gradient, expected, 1e-4)


@pytest.mark.any_backend("torch")
def test_an_exported_program_has_open_sizes(rng):
    """It computes batches and lengths that were not traced."""
    import torch

    inputs = keras.Input((None, HIDDEN)), keras.Input((None, 2), dtype="int32")
    encoder = DietEncoder(1, NUM_HEADS, 11, make_bias(rng))
    model = keras.Model(inputs, encoder(inputs[0], coordinates=inputs[1]))
    x, places = torch.randn((2, 5, HIDDEN)), torch.as_tensor(PLACES)
    sizes = dict.fromkeys(range(2), torch.export.Dim.DYNAMIC)
    program = torch.export.export(model, ((x, places),), dynamic_shapes=[((sizes, sizes),)])
    for rows, length in ((2, 5), (1, 3)):
        arguments = (x[:rows, :length], places[:rows, :length])
        assert_close(program.module()(arguments), model(arguments), 1e-6)


def test_a_registered_name(rng, register):
    def bias(num_heads, **kwargs):
        return CoordinateBias([layers.AlibiPositionBias(num_heads, max_length=9)], **kwargs)

    name = register(bias=bias, sharing_modes=("none",))
    encoder = make_encoder(rng, position_encoding=name)
    x = diet_encoders.make_inputs(rng)[0]
    y = encoder(x, coordinates=PLACES[..., :1])
    assert np.abs(to_numpy(y - encoder(x, coordinates=PLACES[:, ::-1, :1]))).max() > 1e-3
    assert_close(encoder(x, coordinates=8 - PLACES[..., :1]), y)
    for row in (slice(1), slice(1, 2)):
        assert_close(encoder(x[row], coordinates=PLACES[row, :, :1]), to_numpy(y)[row])


# === Refused ===


@any_backend
def test_refused(rng):
    x = diet_encoders.make_inputs(rng)[0]
    alibi, t5 = layers.AlibiPositionBias, layers.BucketedRelativePositionBias
    fire, curves = layers.FirePositionBias, layers.QueryRelativePositionBias
    tupe = layers.UntiedPositionBias(2, 3, 5, 7, relative=True)
    for wrong in (fire(2, max_length=5), curves(2, max_length=5), alibi(2), tupe):
        with pytest.raises(ValueError, match="`biases` must have scores that depend on the dist"):
            CoordinateBias([wrong])
    for biases in ([], [alibi(2, max_length=5), t5(3, max_length=5)]):
        with pytest.raises(ValueError, match=r"same number of heads.*num_heads=\["):
            CoordinateBias(biases)
    bias = make_bias()
    for wrong in (x, PLACES[..., :1], PLACES[0], PLACES.astype("float32")):
        with pytest.raises(
            ValueError, match=r"must be integers of shape \(batch_size, length, 2\)"
        ):
            bias(wrong)
    for row in ([0, 11], [-1, 3]):
        wrong = np.where(PLACES == [2, 10], row, PLACES).astype("int32")
        with pytest.raises(ValueError, match=r"Coordinates of axis . must be in \[0, max_length"):
            bias(PLACES, wrong)
    encoder, message = make_encoder(rng, position_encoding=bias), "`coordinates` must have the"
    for arguments in ({}, {"coordinates": PLACES[:, :4]}, {"coordinates": PLACES[[0, 1, 1]]}):
        with pytest.raises(ValueError, match=message):
            encoder(x, **arguments)
    with pytest.raises(ValueError, match=message):
        make_encoder(rng)(x, coordinates=PLACES)
    with pytest.raises(ValueError, match="depend on the content cannot be computed before"):
        cache_positions(bias)
    with pytest.raises(ValueError, match="Coordinates must be integers"):
        DietDecoder(1, NUM_HEADS, 11, position_encoding=make_bias())(x, x)
