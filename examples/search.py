"""Lesson 4: search texts by meaning with a trained sentence encoder.

You learn how to load a sentence encoder of Hugging Face, to embed texts once, and to find the texts
that are nearest to a query. The encoder is a folder of sentence-transformers, such as
all-MiniLM-L6-v2 or all-mpnet-base-v2. It is read without a network and without PyTorch.

    python examples/search.py all-MiniLM-L6-v2 manual.txt "How do I install it?" "Which licence?"

Without arguments the lesson searches a few sentences with the small model in the package, which was
not trained for search: lesson 5 trains it.
"""

import sys

if "--help" in sys.argv:  # before the imports, which take seconds
    sys.exit(print(__doc__))

import hashlib
from pathlib import Path

import numpy as np

from keras_diet import models

SENTENCES = [
    "a river floods the town after weeks of rain",
    "the team wins the game in the last minute",
    "the band records its second album in a small studio",
    "the law gives every citizen the right to vote",
    "the train to the city leaves from the old station",
]
QUERIES = ["there is water everywhere", "who won the match?"]


def load_encoder(folder=None):
    """Return the encoder of a folder, or the model in the package."""
    if folder is None:
        return models.DietBertTextEmbedder.from_preset("diet_bert_tiny_en")
    return models.DietBertTextEmbedder.from_hugging_face(folder)


def read_paragraphs(file):
    """Return the paragraphs of a text file, which blank lines separate, each as one line."""
    text = Path(file).read_text(encoding="utf-8")
    paragraphs = [" ".join(each.split()) for each in text.split("\n\n")]
    return [paragraph for paragraph in paragraphs if paragraph]


def embed_once(encoder, encoder_name, texts, folder):
    """Return the embeddings of texts. A second run reads them from a file."""
    key = "\n".join([str(encoder_name), *texts])
    file = Path(folder, f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.npy")
    if not file.exists():
        print(f"{len(texts):,} paragraphs are embedded.")
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, np.asarray(encoder.encode_documents(texts, verbose=0)))
    return np.load(file)


def main(encoder_folder=None, file=None, queries=QUERIES, folder="runs/search"):
    """Print the three paragraphs that are nearest to each query."""
    encoder = load_encoder(encoder_folder)
    texts = read_paragraphs(file) if file else SENTENCES
    documents = embed_once(encoder, encoder_folder, texts, folder)
    # Embeddings have the length 1, so the inner product is the cosine.
    similarity = np.asarray(encoder.encode_text(list(queries), verbose=0)) @ documents.T
    nearest = np.argsort(-similarity)[:, :3]
    for query, row, order in zip(queries, similarity, nearest, strict=True):
        print(f"\n{query}")
        for i in order:
            print(f"  {row[i]:.3f}  {texts[i]:.150}")
    return [[texts[i] for i in order] for order in nearest]


if __name__ == "__main__":
    main(*sys.argv[1:3], *([sys.argv[3:]] if sys.argv[3:] else []))
