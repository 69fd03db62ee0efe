"""sentence-transformers with ONNX Runtime as its backend, through Optimum."""

import json
import sys

import optimum.onnxruntime  # noqa: F401
from sentence_transformers import SentenceTransformer

_, folder, texts = json.load(sys.stdin)
model = SentenceTransformer(folder, backend="onnx", device="cpu")
print(json.dumps(model.encode(texts).tolist()))
