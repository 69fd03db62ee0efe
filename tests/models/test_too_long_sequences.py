"""Sequences that grow too long while a compiled `predict` runs."""

import keras
import numpy as np
import pytest

from tests.models.tiny import tiny_backbone


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize("position_encoding", ["diet_abs", "input"])
def test_growing_sequences_are_refused_in_our_words(position_encoding):
    backbone = tiny_backbone(position_encoding=position_encoding)
    too_long = ValueError
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # The third length makes Keras trace a graph for all of them.
        too_long = (ValueError, tf.errors.InvalidArgumentError)

    def inputs(length):
        names = ("token_ids", "segment_ids", "padding_mask")
        return {name: np.ones((2, length), dtype="int32") for name in names}

    for length in (5, 6, 13):
        outputs = backbone.predict(inputs(length), verbose=0)
        assert outputs["sequence_output"].shape == (2, length, 15)
    with pytest.raises(too_long, match=r"max_(sequence_)?length"):
        backbone.predict(inputs(14), verbose=0)
