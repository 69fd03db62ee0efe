"""The cases that are compared between backends."""

import itertools

from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS

BACKENDS = ("tensorflow", "jax", "torch")
BACKEND_PAIRS = tuple(itertools.combinations(BACKENDS, 2))
NAMES = ("position_encoding", "sharing", "segment_encoding", "projection_dim")


def _cases(*rows):
    return tuple(dict(zip(NAMES, values, strict=False)) for values in rows)


# The encodings of the paper with each sharing. The place of the segments varies with them.
PAPER = (
    ("diet_abs", "none", "per-head"),
    ("diet_abs", "head-wise", "input"),
    ("diet_abs", "layer-wise", "none"),
    ("diet_rel", "none", "per-head"),
    ("diet_rel", "head-wise", "none"),
    ("diet_rel", "layer-wise", "input"),
    ("input", None, "input"),
    ("input", None, "per-head"),
    ("diet_abs", "none", "input", 5),
    ("sinusoidal", None, "none", 5),
)
# Rotary positions need an even size of the heads: their tests compare each backend with NumPy.
OTHERS = POSITION_ENCODINGS.keys() - {"diet_abs", "diet_rel", "input", "rotary"}
PAPER_ENCODINGS = _cases(*PAPER)
ENCODINGS = PAPER_ENCODINGS + _cases(
    *(
        (name, (None, *POSITION_ENCODINGS[name].sharing_modes)[-1], "per-head")
        for name in sorted(OTHERS)
    ),
)
GRADIENT_ENCODINGS = _cases(
    ("diet_abs", "none", "per-head"),
    ("diet_abs", "layer-wise", "per-head"),
    ("diet_rel", "head-wise", "per-head"),
    ("input", None, "input"),
    ("tupe_rel", "head-wise", "per-head"),
    ("shaw", "head-wise", "per-head"),
    ("diet_abs", "none", "input", 5),
)
# The rows of Table 4 of the paper.
TRANSLATION_ENCODINGS = ("sinusoidal", "shaw", "diet_rel", "diet_abs")
# Below the maximum length, so that each encoding uses a part of its positions.
LENGTH = 7


def case_name(encoding):
    """The name of a case, in test identifiers and in the files of results."""
    return "-".join(str(value) for value in encoding.values())
