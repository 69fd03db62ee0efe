"""Search text files by meaning, with a trained sentence encoder of Hugging Face.

The encoder is a folder of sentence-transformers, such as all-mpnet-base-v2 or all-MiniLM-L6-v2. The
script embeds each paragraph of the files once, and keeps the embeddings in `--output-dir`. Then it
prints the paragraphs that are nearest to each query.

    python examples/search_text.py all-mpnet-base-v2 --text manual/*.txt \\
        --query "How do I install it?" "Which licence does it have?"

It needs no network, and not `transformers` either.
"""

import hashlib
from pathlib import Path

import numpy as np
from common import make_parser, positive_int

from keras_diet import models


def main(argv=None):
    arguments = parse_arguments(argv)
    embedder = models.DietBertTextEmbedder.from_hugging_face(arguments.encoder)
    paragraphs = read_paragraphs(arguments.text)
    embeddings = embed_once(embedder, paragraphs, arguments)
    queries = embedder.encode_text(arguments.query, verbose=0)
    similarity = np.asarray(queries) @ embeddings.T
    for query, row in zip(arguments.query, similarity, strict=True):
        print(f"\n{query}")
        for i in np.argsort(-row)[: arguments.top_k]:
            print(f"  {row[i]:.3f}  {paragraphs[i]:.150}")


def parse_arguments(argv=None):
    parser = make_parser(__doc__.splitlines()[0])
    parser.add_argument("encoder", type=Path, help="folder of a sentence encoder")
    parser.add_argument("--text", nargs="+", type=Path, required=True, help="text files")
    parser.add_argument("--query", nargs="+", required=True, help="what to search for")
    parser.add_argument("--top-k", type=positive_int, default=3, help="paragraphs for each query")
    parser.add_argument("--output-dir", type=Path, default=Path("runs/search_text"))
    return parser.parse_args(argv)


def read_paragraphs(files):
    """Return the paragraphs of files, which blank lines separate, each as one line."""
    texts = [file.read_text(encoding="utf-8") for file in files]
    found = [" ".join(each.split()) for text in texts for each in text.split("\n\n")]
    return [paragraph for paragraph in found if paragraph]


def embed_once(embedder, paragraphs, arguments):
    """Return the embeddings of paragraphs, from the file of an earlier run if there is one."""
    key = "\n".join([str(arguments.encoder.resolve()), *paragraphs])
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    file = arguments.output_dir / f"{name}.npy"
    if not file.exists():
        print(f"{len(paragraphs):,} paragraphs are embedded.")
        embeddings = np.asarray(embedder.encode_text(paragraphs, verbose=1))
        arguments.output_dir.mkdir(parents=True, exist_ok=True)
        np.save(file, embeddings)
    return np.load(file)


if __name__ == "__main__":
    main()
