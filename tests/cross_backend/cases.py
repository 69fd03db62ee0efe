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
MORE_SHARING = {
    "t5": ("none", "head-wise", "layer-wise"),
    "tupe_abs": ("none", "head-wise", "layer-wise"),
    "tupe_rel": ("none", "head-wise", "layer-wise"),
    "shaw": ("head-wise",),
    "sinusoidal": (None,),
    "diet_abs_input": ("none",),
}
MORE_ENCODINGS = tuple(
    {
        "position_encoding": position_encoding,
        "sharing": sharing,
        "segment_encoding": "per-head",
    }
    for position_encoding in MORE_SHARING
    for sharing in MORE_SHARING[position_encoding]
)
PROJECTED = tuple(
    {
        "position_encoding": position_encoding,
        "sharing": sharing,
        "segment_encoding": segment_encoding,
        "projection_dim": 5,
    }
    for position_encoding, sharing, segment_encoding in (
        ("diet_abs", "none", "input"),
        ("diet_abs", "head-wise", "none"),
        ("diet_abs", "layer-wise", "input"),
        ("sinusoidal", None, "input"),
    )
)
_DIET_ENCODINGS = tuple(
    {
        "position_encoding": position_encoding,
        "sharing": sharing,
        "segment_encoding": segment_encoding,
    }
    for position_encoding in SHARING
    for sharing in SHARING[position_encoding]
    for segment_encoding in ("per-head", "input", "none")
)
ENCODINGS = (*_DIET_ENCODINGS, *MORE_ENCODINGS, *PROJECTED)
_DIET_GRADIENTS = tuple(
    {
        "position_encoding": position_encoding,
        "sharing": sharing,
        "segment_encoding": "input" if position_encoding == "input" else "per-head",
    }
    for position_encoding in ("diet_abs", "diet_rel", "input")
    for sharing in SHARING[position_encoding][1:] or (None,)
)
GRADIENT_ENCODINGS = (
    *_DIET_GRADIENTS,
    *(
        {"position_encoding": name, "sharing": sharing, "segment_encoding": "per-head"}
        for name, sharing in (
            ("t5", "none"),
            ("tupe_abs", "layer-wise"),
            ("tupe_rel", "head-wise"),
            ("shaw", "head-wise"),
            ("diet_abs_input", "none"),
        )
    ),
    PROJECTED[0],
)
# Below the maximum length and at it.
LENGTHS = (7, 13)


def case_name(encoding):
    """The name of a case, in test identifiers and in the files of results."""
    return "-".join(str(value) for value in encoding.values())
