"""One text a call: `classify`, `fill_mask` and `encode_text` beside pipelines of Hugging Face.

Both libraries read the same random BERT, 4 layers of 512 with a vocabulary of 30,522 tokens, and
take turns with their calls. The pipelines come from `transformers` and `sentence-transformers`,
on PyTorch. Then each of our functions is called `--calls` times with texts of changing lengths, to
see that time, memory and the number of threads do not grow.

    KERAS_BACKEND=jax python -m benchmarks.single_texts --output texts_jax.json
"""

import argparse
import functools
import gc
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tqdm

from benchmarks import measure, results
from keras_diet import models

SIZES = {
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 2048,
}
VOCABULARY_SIZE = 30_522
LENGTHS = [12, 100]
FUNCTIONS = ("classify", "fill_mask", "encode_text")


def words(count: int, seed: int = 0) -> list[str]:
    """Return random words. Each is a token of the tokenizer."""
    rng = np.random.default_rng(seed)
    return [f"w{number}" for number in rng.integers(1000, VOCABULARY_SIZE - 1000, size=count)]


def make_folders(root: Path) -> dict[str, Path]:
    """Write the same random encoder for each function, as Hugging Face's libraries do."""
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = special + [f"w{number}" for number in range(VOCABULARY_SIZE - len(special))]
    tokenizer = transformers.BertTokenizerFast(vocab={token: i for i, token in enumerate(tokens)})
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=VOCABULARY_SIZE, num_labels=3, **SIZES)
    folders = {name: root / name for name in FUNCTIONS}
    for name, kind in (
        ("classify", transformers.BertForSequenceClassification),
        ("fill_mask", transformers.BertForMaskedLM),
        ("encode_text", transformers.BertModel),
    ):
        kind(config).save_pretrained(folders[name])
        tokenizer.save_pretrained(folders[name])
    encoder = modules.Transformer(str(folders["encode_text"]))
    pooling = modules.Pooling(SIZES["hidden_size"])
    pooled = SentenceTransformer(modules=[encoder, pooling, modules.Normalize()], device="cpu")
    folders["encode_text"] = root / "sentences"
    pooled.save(str(folders["encode_text"]))
    return folders


def ours(folders: dict[str, Path]) -> dict[str, Callable[[str], Any]]:
    classifier = models.DietBertTextClassifier.from_hugging_face(folders["classify"])
    masked_lm = models.DietBertMaskedLM.from_hugging_face(folders["fill_mask"])
    embedder = models.DietBertTextEmbedder.from_hugging_face(folders["encode_text"])
    return {
        "classify": classifier.classify,
        "fill_mask": masked_lm.fill_mask,
        "encode_text": embedder.encode_text,
    }


def theirs(folders: dict[str, Path]) -> dict[str, Callable[[str], Any]]:
    import transformers
    from sentence_transformers import SentenceTransformer

    def pipeline(task, name):
        return transformers.pipeline(task, str(folders[name]), device="cpu")

    return {
        "classify": pipeline("text-classification", "classify"),
        "fill_mask": pipeline("fill-mask", "fill_mask"),
        "encode_text": SentenceTransformer(str(folders["encode_text"]), device="cpu").encode,
    }


def text_for(name: str, length: int, seed: int = 0, num_masks: int = 1) -> str:
    """Return a text with this number of tokens, with `[CLS]` and `[SEP]`."""
    chosen = words(length - 2, seed)
    if name == "fill_mask":
        chosen[:num_masks] = ["[MASK]"] * num_masks
    return " ".join(chosen)


def growth(name: str, call: Callable[[str], Any], calls: int) -> dict[str, list[float]]:
    """Return time, memory and threads in the second tenth and in the last tenth of many calls."""
    tenth = calls // 10
    times, found = [], {"milliseconds": [], "memory": [], "threads": []}
    for number in tqdm.trange(calls, desc=name, leave=False, disable=not sys.stderr.isatty()):
        text = text_for(name, 8 + number % 57, number, 1 + number % 3)
        begin = time.perf_counter()
        call(text)
        times.append(time.perf_counter() - begin)
        if number + 1 in (2 * tenth, calls):
            gc.collect()
            measure.return_free_memory()
            found["milliseconds"].append(1e3 * statistics.median(times[-tenth:]))
            found["memory"].append(measure.memory_in_status("VmRSS"))
            found["threads"].append(threading.active_count())
    return found


def measure_function(
    name: str, libraries: dict[str, dict[str, Callable]], options: argparse.Namespace
) -> dict[str, Any]:
    cell: dict[str, Any] = {"milliseconds": {}, "ratio": {}}
    for length in LENGTHS:
        text = text_for(name, length)
        calls = {
            library: functools.partial(functions[name], text)
            for library, functions in libraries.items()
        }
        # The first calls compile, and record on PyTorch.
        measure.time_in_turn(calls, 5)
        times = measure.time_in_turn(calls, options.rounds)
        cell["milliseconds"][str(length)] = {
            library: 1e3 * statistics.median(each) for library, each in times.items()
        }
        cell["ratio"][str(length)] = measure.ratio(times["keras_diet"], times["hugging_face"])
    cell["growth"] = growth(name, libraries["keras_diet"][name], options.calls)
    return cell


INTRODUCTION = """\
keras_diet pads texts to its `length_buckets`: 12 tokens to 16, and 100 to 128. The pipelines do not
pad one text.
"""


def make_page(runs: dict[str, Any]) -> str:
    return results.page_of("One text a call", INTRODUCTION, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    rows, grown = [], []
    for name, cell in run["cells"].items():
        for length, milliseconds in cell["milliseconds"].items():
            rows.append(
                [
                    *(f"`{name}`", length, f"{milliseconds['keras_diet']:.1f}"),
                    f"{milliseconds['hugging_face']:.1f}",
                    f"{cell['ratio'][length][0]:.2f}",
                ]
            )
        found = cell["growth"]
        grown.append(
            [
                f"`{name}`",
                *(f"{value:.1f}" for value in found["milliseconds"]),
                *(f"{value:.0f}" for value in (*found["memory"], *found["threads"])),
            ]
        )
    columns = ["", "tokens", "keras_diet, ms", "Hugging Face, ms", "ratio"]
    calls = run["settings"]["calls"]
    lines = [
        *results.markdown_table(columns, rows),
        "",
        f"{calls:,} calls with texts of 8 to 64 tokens. Median milliseconds of a call, memory of",
        "the process in MiB, and its threads, after a fifth of the calls and after all of them.",
        "",
    ]
    columns = [
        "",
        *(f"{what}, {when}" for what in ("ms", "MiB", "threads") for when in ("20 %", "end")),
    ]
    return [*lines, *results.markdown_table(columns, grown)]


def main(argv: Sequence[str] | None = None) -> None:
    parser = results.make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="calls of each library")
    parser.add_argument("--calls", type=int, default=2000, help="calls to see growth")
    options = results.parse(parser, argv)
    run = results.start(__spec__.name, options, ("rounds", "calls"), lengths=LENGTHS, **SIZES)
    with tempfile.TemporaryDirectory() as folder:
        folders = make_folders(Path(folder))
        libraries = {"keras_diet": ours(folders), "hugging_face": theirs(folders)}
        cells = {
            name: functools.partial(measure_function, name, libraries, options)
            for name in FUNCTIONS
        }
        results.measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
