"""One system of `benchmarks.serving`, in its own process, which imports only its packages."""

import functools
import json
import statistics
import time
from pathlib import Path

import numpy as np

BATCH_SIZE = 32
FIELDS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}


def keras_diet(folder):
    from keras_diet import models

    embedder = models.DietBertTextEmbedder.from_hugging_face(folder)
    return functools.partial(embedder.encode_text, batch_size=BATCH_SIZE, verbose=0)


def sentence_transformers(folder):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu")
    return functools.partial(model.encode, batch_size=BATCH_SIZE)


def onnxruntime(program):
    import onnxruntime as runtime

    session = runtime.InferenceSession(program)
    names = [each.name for each in session.get_inputs()]
    return in_batches(program, names, lambda inputs: session.run(None, inputs)[-1])


def openvino(program):
    import openvino as runtime

    model = runtime.Core().compile_model(program, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    names = [each.any_name for each in model.inputs]
    return in_batches(program, names, lambda inputs: list(model(inputs).values())[-1])


def in_batches(program, names, run):
    """Return a function of texts. Those of similar length share a batch, as elsewhere."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(Path(program).parents[1] / "tokenizer.json"))
    tokenizer.no_padding()

    def embed(texts):
        rows, parts = tokenizer.encode_batch(texts), []
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
        for start in range(0, len(rows), BATCH_SIZE):
            batch = [rows[i] for i in order[start : start + BATCH_SIZE]]
            for row in batch:
                row.pad(len(batch[0]))
            inputs = {
                name: np.array([getattr(row, FIELDS[name]) for row in batch]) for name in names
            }
            output = run(inputs)
            if output.ndim == 3:
                # The graph of transformers has no pooling.
                mask = inputs["attention_mask"][:, :, None]
                output = (output * mask).sum(1) / mask.sum(1)
                output /= np.linalg.norm(output, axis=-1, keepdims=True)
            parts.append(output)
        return np.concatenate(parts)[np.argsort(order)]

    return embed


def seconds(embed, texts):
    start = time.perf_counter()
    embed(texts)
    return time.perf_counter() - start


def main(system, source, texts_file, rounds):
    """Print medians, the peak of memory in MiB, and the outputs."""
    embed, texts = globals()[system](source), json.loads(Path(texts_file).read_text())
    # The first calls compile and record.
    outputs = [np.asarray(embed(texts)) for _ in range(2)]
    ones = [[text] for text in texts[:64]]
    times = [seconds(embed, text) for _ in range(4) for text in ones]
    # On PyTorch, the second call of a length records.
    one = statistics.median(times[2 * len(ones) :])
    many = statistics.median(seconds(embed, texts) for _ in range(int(rounds)))
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (int(line.split()[1]) / 2**10 for line in lines if line.startswith("VmHWM"))
    result = {"milliseconds": 1e3 * one, "sentences": len(texts) / many, "memory": peak}
    print(json.dumps({**result, "outputs": outputs[-1].tolist()}))
