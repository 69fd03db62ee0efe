"""Pretraining data: text files to masked-LM batches.

Packed full sentences and no next-sentence task come from appendix A of the DIET paper. New masks in
each epoch come from RoBERTa.

- `read_documents` reads text files.
- `train_wordpiece_vocabulary` trains a vocabulary.
- `pack_text_files` packs full sentences into sequences of token ids. It combines `pack_sentences`
  and `write_packed`.
- `pack_with_beam` does the same on many workers, and `PackedShards` reads the files.
- `masked_lm_dataset` makes batches with new masks in each epoch, without a next-sentence task.
- `language_probabilities` and `sample_languages` mix languages, as XLM does.
- `WarmupLinearDecay` is the learning rate schedule, which is also in `keras_diet.training`.

Every step streams its input, is reproducible from a seed, and runs on every backend. Only
`as_tf_dataset` needs TensorFlow.
"""

from keras_diet import _extras  # noqa: F401  Says what is missing.
from keras_diet.pretraining.dataset import as_tf_dataset, masked_lm_dataset
from keras_diet.pretraining.masking import mask_tokens
from keras_diet.pretraining.pack_with_beam import pack_with_beam
from keras_diet.pretraining.packed_files import PackedShards, pack_text_files, write_packed
from keras_diet.pretraining.packing import number_documents, number_segments, pack_sentences
from keras_diet.pretraining.text import (
    language_probabilities,
    read_documents,
    sample_languages,
    split_sentences,
)
from keras_diet.pretraining.vocabulary import train_wordpiece_vocabulary
from keras_diet.training import WarmupLinearDecay

__all__ = [
    "PackedShards",
    "WarmupLinearDecay",
    "as_tf_dataset",
    "language_probabilities",
    "mask_tokens",
    "masked_lm_dataset",
    "number_documents",
    "number_segments",
    "pack_sentences",
    "pack_text_files",
    "pack_with_beam",
    "read_documents",
    "sample_languages",
    "split_sentences",
    "train_wordpiece_vocabulary",
    "write_packed",
]
