"""Analyses of trained models. One function returns arrays, and another one plots them.

| figure of the paper | arrays | picture |
|---|---|---|
| 2, rank of the attention scores of a batch | `attention_scores`, `numerical_rank` | `plot_ranks` |
| 4 and 7, maps of positional scores | `position_scores` | `plot_scores` |
| 5, input positions with and without DIET | `position_similarity` | `plot_position_similarity` |
| 6, positions and segments without tokens | `position_and_segment_scores` | `plot_scores` |
| 8, rank of positional scores | `position_scores`, `numerical_rank` | `plot_ranks` |

`distance_variance` and `attended_distance` describe the patterns of Figure 7 by numbers.
`examples/paper/inspect_positions.py` plots all these figures for trained models.
"""

from keras_diet.analysis.attention_scores import (
    CrossAttention,
    attention_scores,
    cross_attention,
)
from keras_diet.analysis.learned_scores import (
    position_and_segment_scores,
    position_scores,
    position_similarity,
    segment_scores,
)
from keras_diet.analysis.measures import attended_distance, distance_variance, numerical_rank
from keras_diet.analysis.plots import (
    plot_cross_attention,
    plot_position_similarity,
    plot_ranks,
    plot_scores,
)

__all__ = [
    "CrossAttention",
    "attended_distance",
    "attention_scores",
    "cross_attention",
    "distance_variance",
    "numerical_rank",
    "plot_cross_attention",
    "plot_position_similarity",
    "plot_ranks",
    "plot_scores",
    "position_and_segment_scores",
    "position_scores",
    "position_similarity",
    "segment_scores",
]
