"""Serve a sentence encoder: keras_diet, sentence-transformers, ONNX Runtime and OpenVINO.

Each system embeds the same sentences of STS-B's test set in a separate process. Then programs in
float32 and int8 are compared, of the model in the package after training on SST-2 and STS-B.

    KERAS_BACKEND=torch python -m benchmarks.serving all-MiniLM-L6-v2 --stsb STSB \\
        --sst2 SST-2/train.tsv SST-2/dev.tsv --output docs/benchmarks/serving.json
"""

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from benchmarks import measure, results
from benchmarks.packed_texts import read_texts
from benchmarks.trained_encoders import cosines_and_scores, read_pairs
from keras_diet import models, training

PRESET = "diet_bert_tiny_en"
# `make clients` makes the environment, which OpenVINO can be installed into.
CLIENTS = measure.ROOT / ".clients/bin/python"
OPENVINO = "OpenVINO, our file"
FLOAT, INT8 = "onnx/model.onnx", "onnx/model_quantized.onnx"


def make_folders(encoder: Path, ours: Path, theirs: Path) -> None:
    """Write our folder, and one with the graph that PyTorch makes of the model of transformers."""
    import torch
    import transformers
    from onnxruntime.quantization import quantize_dynamic

    embedder = models.DietBertTextEmbedder.from_hugging_face(encoder)
    embedder.export_to_hugging_face(ours, onnx="int8")
    (theirs / FLOAT).parent.mkdir(parents=True)
    shutil.copy(ours / "tokenizer.json", theirs)
    names = ("input_ids", "attention_mask", "token_type_ids")
    torch.onnx.export(
        transformers.AutoModel.from_pretrained(encoder, add_pooling_layer=False).eval(),
        kwargs={name: torch.ones((5, 7), dtype=torch.int64) for name in names},
        f=theirs / FLOAT,
        dynamo=True,
        dynamic_shapes={name: {0: "batch", 1: "length"} for name in names},
        output_names=["last_hidden_state"],
    )
    quantize_dynamic(theirs / FLOAT, theirs / INT8)


def run_system(texts: Sequence[str], rounds: int, system: str, source: Path, backend: str = ""):
    """Return what a system of `benchmarks.serving_system` prints in its own process."""
    python = CLIENTS if system == "openvino" else sys.executable
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(list(texts), file)
        file.flush()
        code = "import sys, benchmarks.serving_system as s; s.main(*sys.argv[1:])"
        command = [python, "-c", code, system, source, file.name, rounds]
        output = subprocess.run(
            list(map(str, command)),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            cwd=measure.ROOT,
            env=os.environ | {"KERAS_BACKEND": backend},
        ).stdout
    return json.loads(output.splitlines()[-1])


def measure_system(*arguments: Any) -> dict[str, Any]:
    found = run_system(*arguments)
    del found["outputs"]
    return found


def has_openvino() -> bool:
    command = [str(CLIENTS), "-c", "import openvino"]
    return CLIENTS.exists() and subprocess.run(command, capture_output=True).returncode == 0


# === The model in the package, in float32 and int8 ===

Trained = tuple[Any, list[str], Callable[[np.ndarray], float]]


def train_on_sst2(files: Sequence[Path]) -> Trained:
    """Return a classifier, sentences, and their accuracy as a function of the outputs."""
    (texts, labels), (held_out, expected) = map(read_texts, files)
    classifier = models.DietBertTextClassifier.from_preset(PRESET, num_classes=2)
    classifier.preprocessor.length_buckets = (16, 32, 64)
    classifier.compile(keras.optimizers.AdamW(5e-4), classifier.loss)
    classifier.fit(texts[:20_000], labels[:20_000], verbose=0)
    return classifier, held_out, lambda logits: float((logits.argmax(-1) == expected).mean())


def train_on_stsb(folder: Path) -> Trained:
    """Return an embedder, sentences, and the rank correlation of their cosines with the scores."""
    first, second, scores = read_pairs(folder, "train")
    embedder = models.DietBertTextEmbedder.from_preset(PRESET)
    embedder.preprocessor.length_buckets = (16, 32, 64)
    embedder.compile(keras.optimizers.AdamW(2e-4), training.CosineSimilarityLoss())
    embedder.fit((first, second), scores / 5, epochs=2, verbose=0)
    first, second, scores = read_pairs(folder)
    return embedder, [*first, *second], lambda found: cosines_and_scores(found, scores)


def compare_programs(rounds: int, train: Callable[[Any], Trained], data: Any) -> dict[str, Any]:
    task, texts, score = train(data)
    cell = {}
    with tempfile.TemporaryDirectory() as folder:
        task.export_to_hugging_face(folder, onnx="int8")
        for name, program in (("float32", FLOAT), ("int8", INT8)):
            path = Path(folder, program)
            found = run_system(texts, rounds, "onnxruntime", path)
            found |= {"score": score(np.array(found.pop("outputs"))), "size": path.stat().st_size}
            cell[name] = found
    return cell


# === Page ===

INTRODUCTION = """\
`keras_diet` is `encode_text`. Milliseconds are of one sentence, and sentences a second of batches
of 32 sentences of similar length. Both include the tokenizer. Memory is the peak of the process in
MiB. OpenVINO computes in float32 here.

Without VNNI or AMX, as on processors with AVX2 alone, a product in int8 takes several instructions.
Probably int8 gains less in batches for this reason. The time of one sentence goes into reading
weights. Both files in int8 are by `quantize_dynamic` of ONNX Runtime.
"""


def make_page(runs: dict[str, Any]) -> str:
    return results.page_of("Serving", INTRODUCTION, runs, make_tables)


def make_tables(run: dict[str, Any]) -> list[str]:
    def figures(cell):
        return [f"{cell['milliseconds']:.1f}", f"{cell['sentences']:.0f}", f"{cell['memory']:.0f}"]

    systems = {name: cell for name, cell in run["cells"].items() if "memory" in cell}
    columns = ["one sentence, ms", "sentences a second", "memory"]
    rows = [[name, *figures(cell)] for name, cell in systems.items()]
    if OPENVINO not in systems:
        rows.append([OPENVINO, "not installed", "", ""])
    lines = results.markdown_table(["system", *columns], rows)
    rows = [
        [name, kind, f"{cell['score']:.4f}", f"{cell['size'] / 1e6:.1f}", *figures(cell)]
        for name in run["cells"].keys() - systems.keys()
        for kind, cell in run["cells"][name].items()
    ]
    columns = ["packaged model", "program", "score", "MB", *columns]
    return [*lines, "", *results.markdown_table(columns, sorted(rows))]


def main(argv: Sequence[str] | None = None) -> None:
    parser = results.make_parser(__doc__)
    parser.add_argument("encoder", type=Path, help="folder of sentence-transformers")
    parser.add_argument("--stsb", type=Path, required=True, help="folder of STS-B")
    parser.add_argument(
        "--sst2", type=Path, nargs=2, required=True, help="GLUE's SST-2: train.tsv and dev.tsv"
    )
    parser.add_argument("--rounds", type=int, default=5, help="passes over the sentences")
    parser.add_argument("--folders", type=Path, default="runs/serving", help="keeps ONNX files")
    parser.add_argument("--sentences", type=int, default=512, help="number of sentences")
    options = results.parse(parser, argv)
    # The figures leave out folders.
    data = "--stsb STSB --sst2 SST-2/train.tsv SST-2/dev.tsv"
    options.command = [f"ENCODER {data} --rounds {options.rounds}"]
    names, encoder = ("rounds", "sentences"), options.encoder.name
    run = results.start(__spec__.name, options, names, encoder=encoder)
    first, second, _ = read_pairs(options.stsb)
    texts = [*first, *second][:: 2 * len(first) // options.sentences]
    ours, theirs = options.folders / "ours", options.folders / "theirs"
    if not theirs.exists():
        make_folders(options.encoder, ours, theirs)
    systems = {
        **{
            f"keras_diet, {name}": ("keras_diet", options.encoder, backend)
            for backend, name in results.BACKENDS.items()
        },
        "sentence-transformers": ("sentence_transformers", options.encoder),
        "ONNX Runtime, Hugging Face's graph": ("onnxruntime", theirs / FLOAT),
        "ONNX Runtime, Hugging Face's graph in int8": ("onnxruntime", theirs / INT8),
        "ONNX Runtime, our file": ("onnxruntime", ours / FLOAT),
        "ONNX Runtime, our file in int8": ("onnxruntime", ours / INT8),
    }
    if has_openvino():
        systems[OPENVINO] = ("openvino", ours / FLOAT)
    run_one = functools.partial(measure_system, texts, options.rounds)
    compare = functools.partial(compare_programs, options.rounds)
    cells = {name: functools.partial(run_one, *each) for name, each in systems.items()}
    cells["SST-2, accuracy"] = functools.partial(compare, train_on_sst2, options.sst2)
    cells["STS-B, Spearman"] = functools.partial(compare, train_on_stsb, options.stsb)
    results.measure_cells(options, run, cells, make_page)


if __name__ == "__main__":
    main()
