"""What the training of a model needs beside the model.

- `EpochDataset` is data that can be read from any epoch and batch on.
- `ExactResume` continues an interrupted training with the next step.
- `AccumulatedSteps` makes a schedule fit an optimizer that accumulates gradients.
- `InverseSquareRootDecay` is the learning rate of the first Transformer.
- `WarmupLinearDecay` is the learning rate of BERT.
- `SmoothedCategoricalCrossentropy` is the loss of the first Transformer, with label smoothing.
- `MultipleNegativesRankingLoss`, `CosineSimilarityLoss` and `CoSENTLoss` train embeddings of texts,
  `MatryoshkaLoss` trains embeddings of several sizes, and `EmbeddingLoss` is their base class.
- `MarginMeanSquaredError` trains a reranker on the scores of a teacher.
- `TokenBatches` makes batches with about the same number of tokens.
- `average_weights` loads the mean of several files of weights.
"""

from keras_diet.data.epoch_dataset import EpochDataset
from keras_diet.data.token_batches import TokenBatches
from keras_diet.training.average_weights import average_weights
from keras_diet.training.embedding_losses import (
    CoSENTLoss,
    CosineSimilarityLoss,
    EmbeddingLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from keras_diet.training.exact_resume import ExactResume
from keras_diet.training.losses import MarginMeanSquaredError, SmoothedCategoricalCrossentropy
from keras_diet.training.schedules import (
    AccumulatedSteps,
    InverseSquareRootDecay,
    WarmupLinearDecay,
)

__all__ = [
    "AccumulatedSteps",
    "CoSENTLoss",
    "CosineSimilarityLoss",
    "EmbeddingLoss",
    "EpochDataset",
    "ExactResume",
    "InverseSquareRootDecay",
    "MarginMeanSquaredError",
    "MatryoshkaLoss",
    "MultipleNegativesRankingLoss",
    "SmoothedCategoricalCrossentropy",
    "TokenBatches",
    "WarmupLinearDecay",
    "average_weights",
]
