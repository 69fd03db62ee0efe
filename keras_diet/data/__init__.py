"""What a user passes to a model, as batches that depend on a seed, an epoch and an index.

- `columns` is the only place that asks what arrays and lists of a user are.
- `EpochDataset` is data whose batches can be read from any epoch and index on.
- `source_of` makes one of everything that `fit` takes.
- `TokenBatches` are batches with about the same number of tokens.
- `for_keras` is the only door to Keras.

`EpochDataset` and `TokenBatches` are public in `keras_diet.training`.
"""
