"""Lesson 5: train a model to embed texts, for search.

You learn how to make a sentence encoder of a pretrained model. It needs only pairs of texts that
belong together: in a batch, the other texts are the wrong answers (`MultipleNegativesRankingLoss`).
Here a pair is two sentences that follow each other in the language reference of Python, so nothing
is downloaded. Recall says how often the right sentence of a held-out pair is found among all.

    KERAS_BACKEND=jax python examples/train_embedder.py

`examples/paper/train_embedder.py` trains on XNLI and STS-B.
"""

import sys

if "--help" in sys.argv:  # before the imports, which take seconds
    sys.exit(print(__doc__))

import re
from pathlib import Path
from pydoc_data.topics import topics

import keras

from keras_diet import metrics, models, training


def read_pairs():
    """Return the first two sentences of each paragraph, and every tenth of these pairs."""
    pairs = []
    for name in sorted(topics):
        for paragraph in topics[name].split("\n\n"):
            sentences = re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split()))
            kept = [sentence for sentence in sentences if len(sentence) > 20]
            if len(kept) > 1:
                pairs.append(kept[:2])
    train = [pair for i, pair in enumerate(pairs) if i % 10]
    return [list(zip(*part, strict=True)) for part in (train, pairs[::10])]


def make_embedder(steps):
    """Return an embedder that begins with the pretrained model in the package."""
    embedder = models.DietBertTextEmbedder.from_preset("diet_bert_tiny_en")
    # The embedding is the mean of all tokens, so the pooler gets no gradient.
    embedder.backbone.pooled_dense.trainable = False
    rate = training.WarmupLinearDecay(5e-4, steps, warmup_proportion=0.1)
    embedder.compile(keras.optimizers.AdamW(rate), training.MultipleNegativesRankingLoss())
    return embedder


def recall(embedder, pairs):
    """Return how often the second sentence is the nearest of all, or one of ten."""
    first, second = (embedder.encode_text(list(texts), verbose=0) for texts in pairs)
    relevant = [[i] for i in range(len(first))]
    found = metrics.retrieval_metrics(embedder.similarity(first, second), relevant, k=(1, 10))
    return {name: float(value) for name, value in found.items()}


def main(epochs=3, batch_size=64, number=None, folder=None):
    """Train on pairs, and compare the recall before and after."""
    keras.utils.set_random_seed(0)
    folder = Path(folder or Path("runs", "train_embedder", keras.config.backend()))
    (first, second), held_out = read_pairs()
    first, second = list(first[:number]), list(second[:number])
    embedder = make_embedder(epochs * -(-len(first) // batch_size))
    results = {"before": recall(embedder, held_out)}
    # After an interruption, `fit` continues with the next step.
    training.ExactResume(folder / "checkpoints", save_every=200).fit(
        embedder,
        (first, second),
        batch_size=batch_size,
        epochs=epochs,
        verbose=1 if sys.stdout.isatty() else 2,
    )
    results["after"] = recall(embedder, held_out)
    for name, found in results.items():
        print(f"{name}: " + ", ".join(f"{key} {value:.3f}" for key, value in found.items()))
    embedder.save_to_preset(folder / "preset")
    print(f"The preset is in {folder}.")
    return results


if __name__ == "__main__":
    main()
