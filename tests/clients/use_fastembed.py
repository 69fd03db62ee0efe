"""fastembed with a custom model."""

import json
import sys

import fastembed
from fastembed.common.model_description import ModelSource, PoolingType

_, folder, texts = json.load(sys.stdin)
fastembed.TextEmbedding.add_custom_model(
    "ours",
    pooling=PoolingType.DISABLED,
    normalization=False,
    output_name="sentence_embedding",
    sources=ModelSource(url="unused"),
    dim=15,
    model_file="onnx/model.onnx",
)
model = fastembed.TextEmbedding("ours", specific_model_path=folder)
print(json.dumps([row.tolist() for row in model.embed(texts, batch_size=2)]))
