"""Packed sequences of several languages, read as one array."""

from collections.abc import Mapping

import grain
import numpy as np

from keras_diet.pretraining.languages import language_probabilities


class MixedSequences:
    """The sequences of several languages, one language after the other.

    Args:
        sequences: Mapping of each language to an integer array of shape `(N, L)`, such as a memory
            map. All arrays have the same `L`.
    """

    def __init__(self, sequences: Mapping[str, np.ndarray]) -> None:
        self.sizes = {language: len(array) for language, array in sequences.items()}
        self.arrays = list(sequences.values())
        self.starts = np.cumsum([0, *self.sizes.values()])
        # The tokens of one language may need more bytes.
        self.dtype = np.result_type(*self.arrays)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return the sequences in some rows, an array of shape `(len(rows), L)`."""
        languages = np.searchsorted(self.starts, rows, side="right") - 1
        found = np.empty((len(rows), self.arrays[0].shape[1]), self.dtype)
        for i in np.unique(languages):
            found[languages == i] = self.arrays[i][rows[languages == i] - self.starts[i]]
        return found

    def rows(self, shuffle: bool, seed: int, sampling_exponent: float) -> grain.MapDataset:
        """Return an endless series of row numbers, mixed as `language_probabilities` says.

        Each language has its own epochs: all its rows, before one of them comes again.
        """
        probabilities = language_probabilities(self.sizes, sampling_exponent)
        languages = []
        # With one seed, all languages of the same size would have the same order.
        seeds = np.random.SeedSequence(seed).generate_state(len(self.arrays)).tolist()
        for i in range(len(self.arrays)):
            rows = grain.MapDataset.range(self.starts[i], self.starts[i + 1]).seed(seeds[i])
            languages.append((rows.shuffle() if shuffle else rows).repeat())
        return grain.MapDataset.mix(languages, list(probabilities.values())).seed(seed)
