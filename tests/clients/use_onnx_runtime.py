"""ONNX Runtime and `tokenizers`. Keras is not imported."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import tokenizers

task, folder, texts = json.load(sys.stdin)
folder = Path(folder)
tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
# Whether "[SEP]" in a text is a word, as in Keras.
settings = json.loads((folder / "tokenizer_config.json").read_text())
tokenizer.encode_special_tokens = settings["split_special_tokens"]
session = onnxruntime.InferenceSession(folder / "onnx/model.onnx")
encodings = tokenizer.encode_batch(texts)
columns = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
inputs = {
    each.name: np.array([getattr(row, columns[each.name]) for row in encodings], "int64")
    for each in session.get_inputs()
}
if task == "embed":
    answer = session.run(["sentence_embedding"], inputs)[0].tolist()
if task == "classify":
    labels = json.loads((folder / "config.json").read_text())["id2label"]
    (logits,) = session.run(["logits"], inputs)
    answer = [labels[str(i)] for i in logits.argmax(-1)]
if task == "answer":
    answer = []
    starts, ends = session.run(["start_logits", "end_logits"], inputs)
    for row, start, end, (_, context) in zip(encodings, starts, ends, texts, strict=True):
        in_context = np.array([sequence == 1 for sequence in row.sequence_ids])
        scores = start[:, None] + end
        scores[~np.triu(np.outer(in_context, in_context))] = -np.inf
        first, last = np.unravel_index(scores.argmax(), scores.shape)
        answer.append(context[row.offsets[first][0] : row.offsets[last][1]])
assert not {"keras", "torch", "tensorflow", "jax", "transformers"} & sys.modules.keys()
print(json.dumps(answer))
