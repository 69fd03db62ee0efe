"""Training of sentence embeddings: keras_diet and `sentence-transformers`, side by side.

Both libraries train the same encoder on STS-B with the loss CoSENT: the same start, the same
batches, the same optimizer and schedule. They take turns with their steps. The page has the
Spearman correlations on STS-B's test set, and the ratio of the times of a step.

    KERAS_BACKEND=torch python -m benchmarks.train_embedders all-MiniLM-L6-v2 --data STSB \\
        --output runs/train_embedders_torch.json
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from tqdm import tqdm

from benchmarks import measure, results
from benchmarks.trained_encoders import cosines_and_scores, in_batches, read_pairs
from keras_diet import models, training

Pairs = tuple[list[str], list[str], np.ndarray]


class Ours:
    """An embedder of keras_diet."""

    def __init__(self, folder: Path, rate: float, steps: int) -> None:
        self.model = models.DietBertTextEmbedder.from_hugging_face(folder)
        preprocessor = self.model.preprocessor
        preprocessor.length_buckets = tuple(range(8, preprocessor.sequence_length, 8))
        schedule = training.WarmupLinearDecay(rate, steps, 0.1)
        optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.0, epsilon=1e-8)
        jit_compile = keras.config.backend() != "torch"
        self.model.compile(optimizer, training.CoSENTLoss(), jit_compile=jit_compile)

    def step(self, first: list[str], second: list[str], scores: np.ndarray) -> float:
        return float(self.model.train_on_batch((first, second), scores))

    def embed(self, texts: list[str]) -> np.ndarray:
        return np.asarray(self.model.predict(texts, verbose=0))


class Theirs:
    """A model of sentence-transformers, with the optimizer of PyTorch and our schedule."""

    def __init__(self, folder: Path, rate: float, steps: int) -> None:
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.losses import CoSENTLoss

        self.torch = torch
        self.model = SentenceTransformer(str(folder), device="cpu")
        self.loss = CoSENTLoss(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), rate, weight_decay=0.0)
        factor = training.WarmupLinearDecay(1.0, steps, 0.1)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: float(factor(step))
        )

    def step(self, first: list[str], second: list[str], scores: np.ndarray) -> float:
        self.model.train()
        features = [self.model.preprocess(texts) for texts in (first, second)]
        loss = self.loss(features, self.torch.tensor(scores, dtype=self.torch.float32))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return float(loss.detach())

    def embed(self, texts: list[str]) -> np.ndarray:
        return self.model.encode(texts, show_progress_bar=False)


def train(folder: Path, train_pairs: Pairs, test_pairs: Pairs, seed: int, options: Any) -> Any:
    """Return the correlations and the times of both libraries for a seed."""
    keras.utils.set_random_seed(seed)
    first, second, scores = train_pairs
    order = np.random.default_rng(seed).permutation(len(first))
    starts = range(0, len(order) - options.batch_size + 1, options.batch_size)
    batches = [order[i : i + options.batch_size] for i in starts][: options.steps]
    arguments = (folder, options.learning_rate, len(batches))
    sides = {"keras_diet": Ours(*arguments), "sentence-transformers": Theirs(*arguments)}
    texts = [*test_pairs[0], *test_pairs[1]]

    def correlations():
        return {
            name: cosines_and_scores(in_batches(side.embed, texts), test_pairs[2])
            for name, side in sides.items()
        }

    before = correlations()
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number, rows in enumerate(tqdm(batches, leave=False)):
        batch = [first[i] for i in rows], [second[i] for i in rows], scores[rows]
        for name in sorted(sides, reverse=bool(number % 2)):
            step = functools.partial(sides[name].step, *batch)
            times[name].append(measure.seconds(step))
    # The first steps compile.
    late = {name: values[len(values) // 4 :] for name, values in times.items()}
    ratio = measure.ratio(late["keras_diet"], late["sentence-transformers"])
    return {"before": before, "after": correlations(), "seconds": late, "ratio": ratio}


def make_page(runs: dict[str, Any]) -> str:
    return results.page_of("Training of sentence embeddings", "", runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    names = ("keras_diet", "sentence-transformers")
    columns = ["seed", "before", *(f"after, {name}" for name in names), "time of a step"]
    rows = [
        [
            seed,
            f"{cell['before']['keras_diet']:.4f}",
            *(f"{cell['after'][name]:.4f}" for name in names),
            f"{cell['ratio'][0]:.2f}",
        ]
        for seed, cell in run["cells"].items()
    ]
    return results.markdown_table(columns, rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = results.make_parser(__doc__)
    parser.add_argument("encoder", type=Path, help="folder of sentence-transformers")
    parser.add_argument("--data", type=Path, required=True, help="folder of STS-B")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=int, help="steps of a training. Without it, an epoch")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    options = results.parse(parser, argv)
    # The figures leave out folders.
    options.command = [f"{options.encoder.name} --data STSB --seeds", *map(str, options.seeds)]
    if options.steps:
        options.command.append(f"--steps {options.steps}")
    run = results.start(__spec__.name, options, ("steps", "batch_size", "learning_rate"))
    pairs = [read_pairs(options.data, split) for split in ("train", "test")]
    cells = {
        str(seed): functools.partial(train, options.encoder, *pairs, seed, options)
        for seed in options.seeds
    }
    results.measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
