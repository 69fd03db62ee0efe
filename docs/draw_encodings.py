"""Draw the pictures of the pages in docs/encodings: `python docs/draw_encodings.py`.

A picture shows what an encoding adds to the scores of one head for 24 tokens, with random
parameters. Some pictures also show which parameter each pair of positions uses.
"""

from pathlib import Path

import keras
import numpy as np
from keras import ops
from keras_hub.layers import SinePositionEncoding
from matplotlib.figure import Figure

from keras_diet import layers

FOLDER = Path(__file__).parent / "pictures"
LENGTH = 24
NORMAL = keras.initializers.RandomNormal(stddev=1.0)
SCORES = {"cmap": "RdBu_r"}
DISTANCE = np.arange(LENGTH)[None, :] - np.arange(LENGTH)[:, None]  # from query i to key j


def draw(name, *panels):
    """Write `name`.png. Each panel is `(title, array, options)`, or has two axis labels as well."""
    figure = Figure(figsize=(3.6 * len(panels), 3.2), layout="constrained")
    for axis, panel in zip(figure.subplots(1, len(panels)), panels, strict=True):
        title, array, options, *labels = panel
        array = np.squeeze(ops.convert_to_numpy(array))
        if options is SCORES:
            options = {**SCORES, "vmin": -np.abs(array).max(), "vmax": np.abs(array).max()}
        image = axis.imshow(array, **{"cmap": "viridis", **options})
        axis.set_title(title, fontsize=10)
        figure.colorbar(image, ax=axis, shrink=0.8)
        xlabel, ylabel = labels or ("key j", "query i")
        axis.set(xlabel=xlabel, ylabel=ylabel)
    figure.savefig(FOLDER / f"{name}.png", dpi=100)


def scores(bias, **kwargs):
    return bias(np.zeros((1, LENGTH, 1)), **kwargs)


def diet_abs(rank):
    bias = layers.AbsolutePositionBias(1, LENGTH, rank, initializer=NORMAL.clone())
    return f"$P_Q P_K^T$, rank {rank}", scores(bias), SCORES


def tupe(title, **kwargs):
    bias = layers.UntiedPositionBias(1, 4, LENGTH, 8, initializer=NORMAL.clone(), **kwargs)
    return title, scores(bias), SCORES


def draw_diet():
    draw("diet_abs", diet_abs(2), diet_abs(16))
    relative = layers.RelativePositionBias(1, LENGTH, initializer=NORMAL.clone())
    draw("diet_rel", ("i - j", -DISTANCE, {}), ("R$_{i-j}$", scores(relative), SCORES))


def draw_t5():
    bucketed = layers.BucketedRelativePositionBias(1, initializer=NORMAL.clone())
    buckets = layers.BucketedRelativePositionBias(1, num_buckets=16, max_distance=20)
    buckets.build()
    buckets.bucket_embedding.assign(np.arange(16.0)[:, None])
    draw(
        "t5",
        ("bucket(j - i), 16 up to 20 tokens", scores(buckets), {}),
        ("b[bucket(j - i)], 32 up to 128", scores(bucketed), SCORES),
    )


def draw_tupe():
    draw("tupe", tupe("TUPE-A"), tupe("TUPE-R", relative=True))


def draw_shaw(rng):
    attention = layers.RelativeMultiHeadAttention(1, 8, 4, embedding_initializer=NORMAL.clone())
    attention.build((1, LENGTH, 8), (1, LENGTH, 8))
    query, key = rng.normal(size=(2, 1, LENGTH, 1, 8)).astype("float32")
    draw(
        "shaw",
        ("clip(j - i), max_distance 4", np.clip(DISTANCE, -4, 4), {}),
        ("q$_i$ . a$_{clip(j-i)}$ / sqrt(d$_h$)", attention.distance_scores(query, key), SCORES),
    )


def draw_input(rng):
    embeddings, w_q, w_k = rng.normal(size=(LENGTH, 32)), *rng.normal(size=(2, 32, 4))
    draw(
        "input",
        ("P", embeddings, SCORES, "feature", "position"),
        ("$(P W_Q)(P W_K)^T$, rank $d_h$ = 4", embeddings @ w_q @ (embeddings @ w_k).T, SCORES),
    )


def draw_sinusoidal():
    sines = ops.convert_to_numpy(SinePositionEncoding()(np.zeros((1, LENGTH, 32))))[0]
    draw(
        "sinusoidal",
        ("P", sines, SCORES, "feature", "position"),
        ("P P$^T$", sines @ sines.T, {}),
    )


def draw_linformer(rng):
    linformer = layers.AbsolutePositionBias(1, LENGTH, 4, key_length=6, initializer=NORMAL.clone())
    draw(
        "linformer",
        ("E", rng.normal(size=(6, LENGTH)), SCORES, "token", "projected key"),
        ("$P_Q P_K^T$, 6 projected keys", scores(linformer, key=np.zeros((1, 6))), SCORES),
    )


def draw_alibi():
    alibi = scores(layers.AlibiPositionBias(8))
    one_scale = {**SCORES, "vmin": -LENGTH / 2, "vmax": LENGTH / 2}
    draw(
        "alibi",
        ("-m$_h$ |i - j|, head 1 of 8, slope 1/2", alibi[0, 0], one_scale),
        ("head 3 of 8, slope 1/8", alibi[0, 2], one_scale),
    )


def draw_kerple():
    log, power = layers.KerplePositionBias(1), layers.KerplePositionBias(1, kernel="power")
    for bias, r1, r2 in ((log, 2.0, 1.0), (power, 0.5, 0.8)):
        bias.build()
        bias.r1.assign([r1])
        bias.r2.assign([r2])
    draw(
        "kerple",
        ("-r$_1$ log(1 + r$_2$ |i - j|), r$_1$ = 2, r$_2$ = 1", scores(log), SCORES),
        ("-r$_1$ |i - j|$^{r_2}$, r$_1$ = 0.5, r$_2$ = 0.8", scores(power), SCORES),
    )


def draw_sandwich():
    sandwich = scores(layers.SandwichPositionBias(8))
    one_scale = {**SCORES, "vmin": -LENGTH, "vmax": LENGTH}
    draw(
        "sandwich",
        (
            "(p$_i$ . p$_j$ - p$_i$ . p$_i$) / c$_h$, head 1 of 8, c$_h$ = 1",
            sandwich[0, 0],
            one_scale,
        ),
        ("head 3 of 8, c$_h$ = 3", sandwich[0, 2], one_scale),
    )


def draw_fire():
    panels = []
    for threshold in (4, 512):
        fire = layers.FirePositionBias(1, hidden_dim=1, threshold=threshold)
        fire.build()
        # The network is the identity, so that the picture shows its argument.
        for weight, value in zip(fire.weights[2:], (1.0, 0.0, 1.0, 0.0), strict=True):
            weight.assign(np.full(weight.shape, value))
        panels.append((f"argument of f, T = {threshold}", scores(fire), {}))
    draw("fire", *panels)


def draw_rotary(rng):
    rotary = layers.RotaryMultiHeadAttention(1, 32, max_wavelength=100)
    unit = np.zeros((1, LENGTH, 1, 32), "float32")
    unit[..., :16] = 1.0
    same = np.broadcast_to(rng.normal(size=(1, 1, 1, 32)), (1, LENGTH, 1, 32)).astype("float32")
    cosines, turned = (
        ops.convert_to_numpy(rotary.rotate(heads, np.arange(LENGTH)))[0, :, 0]
        for heads in (unit, same)
    )
    draw(
        "rotary",
        ("cosine of the angle", cosines[:, :16], SCORES, "pair t", "position p"),
        ("scores of equal queries and keys", turned @ turned.T, SCORES),
    )


def draw_transformer_xl():
    attention = layers.TransformerXLMultiHeadAttention(
        1, 24, position_bias_initializer=NORMAL.clone(), kernel_initializer=NORMAL.clone()
    )
    attention.build((1, LENGTH, 32), (1, LENGTH, 32))
    vectors = ops.convert_to_numpy(attention.project_distances(LENGTH, LENGTH))[:, 0]
    by_distance = vectors @ ops.convert_to_numpy(attention.position_bias)[0]
    draw(
        "transformer_xl",
        ("W$_R$ r$_p$", vectors[::-1], SCORES, "feature", "distance p + 23"),
        ("v . W$_R$ r$_{i-j}$", by_distance[DISTANCE + LENGTH - 1], SCORES),
    )


def main():
    # The order decides which random numbers a picture gets.
    keras.utils.set_random_seed(3)
    rng = np.random.default_rng(3)
    FOLDER.mkdir(exist_ok=True)
    draw_diet()
    draw_t5()
    draw_tupe()
    draw_shaw(rng)
    draw_input(rng)
    draw_sinusoidal()
    draw_linformer(rng)
    draw_alibi()
    draw_kerple()
    draw_sandwich()
    draw_fire()
    draw_rotary(rng)
    draw_transformer_xl()


if __name__ == "__main__":
    main()
