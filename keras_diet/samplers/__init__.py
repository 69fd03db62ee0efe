"""Ways to choose the tokens that a model generates, for `compile(sampler=...)` of KerasHub's tasks.

- `BeamSearchSampler` searches for the most probable sequences, with GNMT's length penalty.
"""

from keras_diet import _extras  # noqa: F401  Says what is missing.
from keras_diet.samplers.beam_search_sampler import BeamSearchSampler

__all__ = ["BeamSearchSampler"]
