"""What is compared between backends."""

import itertools

BACKENDS = ("tensorflow", "jax", "torch")
BACKEND_PAIRS = tuple(itertools.combinations(BACKENDS, 2))
SHARING = {
    "diet_abs": (None, "none", "head-wise", "layer-wise"),
    "diet_rel": (None, "none", "head-wise", "layer-wise"),
    "input": (None,),
    "none": (None,),
}
ENCODINGS = tuple(
    {
        "position_encoding": position_encoding,
        "sharing": sharing,
        "segment_encoding": segment_encoding,
    }
    for position_encoding in SHARING
    for sharing in SHARING[position_encoding]
    for segment_encoding in ("per-head", "input", "none")
)
GRADIENT_ENCODINGS = tuple(
    {
        "position_encoding": position_encoding,
        "sharing": sharing,
        "segment_encoding": "input" if position_encoding == "input" else "per-head",
    }
    for position_encoding in ("diet_abs", "diet_rel", "input")
    for sharing in SHARING[position_encoding][1:] or (None,)
)
# Below the maximum length and at it.
LENGTHS = (7, 13)


def case_name(encoding):
    """The name of a case, in test identifiers and in the files of results."""
    return "-".join(str(value) for value in encoding.values())
