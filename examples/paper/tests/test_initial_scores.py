"""The sweep of first scores: how it scales the parameters of each encoding, and its tables."""

import numpy as np
import pytest

from examples.paper import initial_scores_page, initial_scores_scale
from examples.paper.initial_scores_runs import LENGTHS
from keras_diet import analysis
from keras_diet.models import DietBertBackbone
from tests.helpers import to_numpy

pytestmark = pytest.mark.any_backend
SCALED = [
    *("diet_abs, rank 8", "diet_rel, segments per head", "t5", "tupe_abs, document masks", "fire"),
    *("input", "input, segments at the input"),
]


def make_backbone(row):
    return DietBertBackbone(
        *(31, 2, 3, 18, 23),
        max_sequence_length=40,
        position_encoding=initial_scores_scale.ROWS[row][0],
        segment_encoding="none",
    )


def centered(scores):
    """The scores of one layer without what softmax removes, and without `[CLS]`."""
    scores = scores[:, 1:, 1:]
    return scores - scores.mean(-1, keepdims=True)


@pytest.mark.parametrize("row", SCALED)
def test_scores_get_the_standard_deviation(row):
    backbone = make_backbone(row)
    before = [centered(scores) for scores in analysis.position_scores(backbone)]
    found = initial_scores_scale.scale(backbone, {"row": row, "stddev": 0.37})
    after = [centered(scores) for scores in analysis.position_scores(backbone)]
    assert found == pytest.approx(0.37, rel=1e-3)
    for old, new in zip(before, after, strict=True):
        assert row.startswith("input") or new.std() == pytest.approx(0.37, rel=1e-3)
        # Only the scale changed. Positions at the input have one factor for all layers.
        factor = after[0].std() / before[0].std()
        assert not row.startswith("input") or new.std() == pytest.approx(
            factor * old.std(), rel=1e-3
        )
        np.testing.assert_allclose(new / new.std(), old / old.std(), atol=1e-3)


def test_scores_of_positions_at_the_input():
    """Those of the inputs of the first layer, whose tokens are left out."""
    backbone = make_backbone("input")
    (embeddings,) = backbone.input_encoding.position_embedding.weights
    before = to_numpy(embeddings)
    initial_scores_scale.scale(backbone, {"row": "input, P", "stddev": 3.0})
    positions, tokens = to_numpy(embeddings), to_numpy(backbone.token_embedding.embeddings)
    np.testing.assert_allclose(positions, 3.0 * before, rtol=1e-5)
    positions = positions / np.sqrt(np.square(positions).mean() + np.square(tokens).mean())
    attention = backbone.encoder.transformer_layers[0].self_attention
    query, key = (
        np.einsum("td,dhk->htk", positions, to_numpy(dense.kernel))
        for dense in (attention.query_dense, attention.key_dense)
    )
    expected = centered(query @ key.swapaxes(1, 2) / np.sqrt(6)).std()
    assert initial_scores_scale.stddev_of_scores(backbone) == pytest.approx(expected, rel=1e-4)


def run_of(row, stddev, seed, loss, lengths=(), **others):
    """A run whose loss was lower before its end."""
    return {
        **{"row": row, "width": 128, "stddev": stddev, "learning_rate": 0.002, "seed": seed},
        **{"first_scores": stddev, "losses": [9.0, 3.0, loss]},
        "lengths": dict(zip(map(str, LENGTHS[: len(lengths)]), lengths, strict=True)),
        **others,
    }


def test_the_best_scale_of_each_row_is_evaluated_on_longer_sequences():
    lengths = (4.1, 5.2, 5.3, 5.4)
    # One of them is better, but was not evaluated.
    others = [run_of("diet_rel", 0.5, seed, 4 - seed, learning_rate=0.003) for seed in (0, 1)]
    runs = [
        run_of("diet_rel", 0.1, 0, 4.25, (6.0,) * 4),
        run_of("diet_rel", 0.5, 0, 4.125, lengths),
        run_of("diet_rel", 0.5, 1, 4.25, lengths),
        run_of("t5", 0.1, 0, 5.0, (7.0,) * 4),
        run_of("t5, document masks", None, 0, 4.5, (6.5,) * 4, first_scores=0.25),
        *others,
        run_of("diet_rel", 0.3, 0, 3.5, (8.0,) * 4, width=256),
    ]
    best = initial_scores_page.best_settings({"runs": runs})
    expected = [(128, 0.5), (128, 0.1), (128, None), (256, 0.3)]
    assert [setting[1:3] for setting in best] == expected
    assert list(best.values()) == [runs[1:3], runs[3:4], runs[4:5], runs[7:]]
    figure = initial_scores_page.plot_losses({"runs": runs})
    axes, _ = figure.axes
    # The mean of each scale, and the seeds of each, with the usual rate.
    assert axes.lines[0].get_ydata() == pytest.approx([4.25, 4.1875])
    assert [list(line.get_ydata()) for line in axes.lines[1:]] == [[4.25], [4.125, 4.25]]
    (axes,) = initial_scores_page.plot_lengths({"runs": runs}).axes
    lines = [(line.get_label(), list(line.get_ydata())) for line in axes.lines]
    assert lines == [
        ("diet_rel", list(lengths)),
        *(("t5", [7.0] * 4), ("t5, document masks", [6.5] * 4)),
    ]
    # The same encoding has the same color.
    styles = [line.get_color() + line.get_linestyle() for line in axes.lines]
    assert styles == ["C0-", "C1-", "C1:"]


def test_scores_as_they_begin_are_points_of_the_plot():
    runs = [
        run_of("t5", 1.5, 0, 5.0),
        run_of("t5", None, 0, 5.5, first_scores=0.25),
        run_of("t5", None, 1, 5.25, first_scores=0.5),
        *(run_of("none", None, seed, 6.0) for seed in (0, 1)),
    ]
    (axes,) = initial_scores_page.plot_losses({"runs": runs}).axes
    assert list(axes.lines[0].get_xdata()) == [0.375, 1.5]
    assert list(axes.lines[0].get_ydata()) == [5.375, 5.0]
    assert len(axes.lines) == 3


def test_rows_with_documents_have_the_options_of_their_row():
    rows = initial_scores_scale.ROWS
    diet_abs = "diet_abs", "--rank", "32"
    assert rows["diet_abs, rank 32, document masks"] == (*diet_abs, "--document-masks")
    per_head = "--document-segments", "--segment-encoding", "per-head"
    assert rows["diet_abs, rank 32, segments per head"] == (*diet_abs, *per_head)


def test_the_page_has_means_over_the_seeds():
    glue = ({"rte": {"accuracy": 0.5}}, {"rte": {"accuracy": 0.625}})
    runs = [run_of("t5", None, seed, 4.0 + seed, glue=glue[seed]) for seed in (0, 1)]
    runs[0]["first_scores"], runs[1]["first_scores"] = 0.125, 0.375
    columns, (row,) = initial_scores_page.glue_of({"runs": runs})
    assert columns == ["", "width", "s", "rte accuracy"]
    assert row == ["t5", "128", "as made", "56.2 ± 8.8"]
    machine = {"date": "", "commit": "", "processor": "", "cores": 1, "memory_gib": 1.0}
    machine |= {"device": "", "backend": "", "environment": {}, "versions": {}}
    page = initial_scores_page.make_page(
        {"commands": [], "machine": machine, "settings": {}, "runs": runs}
    )
    assert "| t5 | 128 | as made | 0.250 | 0.002 | 2 | 4.500 ± 0.707 |" in page
    assert "Longer sequences" not in page
