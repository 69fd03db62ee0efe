"""Trained encoders: outputs and time of keras_diet and `transformers`, side by side.

- *Types*: a tiny random model of each type. The page has the largest difference of two outputs.
- *Sentence encoders*: for each folder of sentence-transformers, both libraries embed the pairs of
  STS-B's test set. The page has the Spearman correlation of the cosines with the scores of people,
  the largest difference of two embeddings, and the time of one text and of 32 texts.

    KERAS_BACKEND=jax python -m benchmarks.trained_encoders all-MiniLM-L6-v2 --data STSB \\
        --output runs/trained_encoders_jax.json
"""

import csv
import functools
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import scipy.stats
from tqdm import tqdm

from benchmarks import measure, results
from keras_diet import models

BATCH_SIZES = (1, 32)


def differences_of_types() -> dict[str, float]:
    """Return the largest difference of two outputs for each type, among its tokens."""
    from tests.models import tiny_encoders

    found = {}
    for model_type in tqdm(tiny_encoders.ENCODERS, leave=False):
        model = tiny_encoders.make(model_type)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*has no pooler")
            backbone = models.DietBertBackbone.from_hugging_face(model)
        padding = model.config.pad_token_id
        inputs = tiny_encoders.random_inputs(np.random.default_rng(0), 1, padding)
        expected = tiny_encoders.outputs(model, inputs).last_hidden_state.detach().numpy()
        actual = keras.ops.convert_to_numpy(backbone(inputs)["sequence_output"])
        is_token = inputs["padding_mask"].astype(bool)
        found[model_type] = float(np.abs(actual - expected)[is_token].max())
    return found


def read_pairs(folder: Path, split: str = "test") -> tuple[list[str], list[str], np.ndarray]:
    """Return the first texts, the second texts and the scores of a part of STS-B."""
    with open(folder / f"sts-{split}.tsv", encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row[5] for row in rows], [row[6] for row in rows], np.array([float(r[4]) for r in rows])


def with_transformers(folder: Path, embedder: Any) -> Callable[[list[str]], np.ndarray]:
    """Return a function that embeds texts with `transformers`, pooled as the embedder does."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    length = embedder.preprocessor.sequence_length

    def embed(texts):
        inputs = tokenizer(
            texts, padding=True, truncation=True, max_length=length, return_tensors="pt"
        )
        with torch.inference_mode():
            states = model(**inputs).last_hidden_state
            mask = inputs["attention_mask"][:, :, None]
            means = (states * mask).sum(1) / mask.sum(1)
            return torch.nn.functional.normalize(means).numpy()

    return embed


def in_batches(embed: Callable[[list[str]], np.ndarray], texts: list[str]) -> np.ndarray:
    """Return the embeddings of texts. Batches hold texts of similar length."""
    order = np.argsort([len(text) for text in texts], kind="stable")
    batches = np.array_split(order, max(len(order) // 32, 1))
    parts = [embed([texts[i] for i in batch]) for batch in tqdm(batches, leave=False)]
    return np.concatenate(parts)[np.argsort(order)]


def cosines_and_scores(embeddings: np.ndarray, scores: np.ndarray) -> float:
    """Return the Spearman correlation of the cosines of pairs with their scores."""
    first, second = np.split(embeddings, 2)
    return float(scipy.stats.spearmanr((first * second).sum(-1), scores).statistic)


def measure_encoder(folder: Path, data: Path, rounds: int) -> dict[str, Any]:
    pairs = read_pairs(data)
    embedder = models.DietBertTextEmbedder.from_hugging_face(folder)
    preprocessor = embedder.preprocessor
    preprocessor.length_buckets = tuple(range(8, preprocessor.sequence_length, 8))
    calls = {
        "keras_diet": lambda texts: np.asarray(embedder.predict(texts, verbose=0)),
        "transformers": with_transformers(folder, embedder),
    }
    texts = [*pairs[0], *pairs[1]]
    embeddings = {name: in_batches(call, texts) for name, call in calls.items()}
    difference = np.linalg.norm(embeddings["keras_diet"] - embeddings["transformers"], axis=-1)
    cell: dict[str, Any] = {
        "model_type": embedder.backbone.position_encoding,
        "spearman": {name: cosines_and_scores(each, pairs[2]) for name, each in embeddings.items()},
        "largest_difference": float(difference.max()),
        "seconds": {},
        "ratio": {},
    }
    for size in BATCH_SIZES:
        of_batch = {name: functools.partial(call, texts[:size]) for name, call in calls.items()}
        # The first calls compile.
        measure.time_in_turn(of_batch, 3)
        times = measure.time_in_turn(of_batch, rounds)
        cell["seconds"][str(size)] = times
        cell["ratio"][str(size)] = measure.ratio(times["keras_diet"], times["transformers"])
    return cell


def make_page(runs: dict[str, Any]) -> str:
    return results.page_of("Trained encoders", "", runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    columns = [
        *("encoder", "positions", "Spearman, keras_diet", "Spearman, transformers"),
        "largest difference",
        *(f"time / transformers, batch of {size}" for size in BATCH_SIZES),
    ]
    types = [[f"`{name}`", f"{value:.1e}"] for name, value in run["types"].items()]
    rows = [
        [
            name,
            f"`{cell['model_type']!r}`".replace("'", '"'),
            *(f"{value:.5f}" for value in cell["spearman"].values()),
            f"{cell['largest_difference']:.1e}",
            *(f"{cell['ratio'][str(size)][0]:.2f}" for size in BATCH_SIZES),
        ]
        for name, cell in run["cells"].items()
    ]
    lines = [*results.markdown_table(["type", "largest difference"], types), ""]
    return [*lines, *results.markdown_table(columns, rows)]


def main(argv: Sequence[str] | None = None) -> None:
    parser = results.make_parser(__doc__)
    parser.add_argument("encoders", nargs="*", type=Path, help="folders of sentence-transformers")
    parser.add_argument("--data", type=Path, help="folder of STS-B, for the encoders")
    parser.add_argument("--rounds", type=int, default=15, help="calls of each library")
    options = results.parse(parser, argv)
    if options.encoders and not options.data:
        parser.error("Encoders need --data")
    # The figures leave out folders.
    folders = ["ENCODERS", "--data", "STSB"] if options.encoders else []
    options.command = [*folders, "--rounds", str(options.rounds)]
    run = results.start(__spec__.name, options, ("rounds",))
    run["types"] = differences_of_types()
    results.save(options, run, make_page)
    cells = {
        folder.name: functools.partial(measure_encoder, folder, options.data, options.rounds)
        for folder in options.encoders
    }
    results.measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
