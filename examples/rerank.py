"""Lesson 8: find paragraphs with an embedder, and put them into a better order with a reranker.

You learn how to train a reranker, which reads a question and a paragraph together. An embedder
finds ten paragraphs of each question among all of them. A question, its right paragraph and some
wrong ones among those found make one example. Then the reranker orders the ten paragraphs of
questions that it has not seen. The data is a file of SQuAD.

    python examples/rerank.py dev-v1.1.json                     # the small model in the package
    python examples/rerank.py dev-v1.1.json all-MiniLM-L6-v2    # a folder of sentence-transformers

A trained reranker needs no training: `DietBertTextReranker.from_hugging_face(folder)` reads such as
ms-marco-MiniLM-L6-v2 of sentence-transformers, and `rank(question, paragraphs)` orders texts.
"""

import sys

if "--help" in sys.argv:  # before the imports, which take seconds
    sys.exit(print(__doc__))

import json
from pathlib import Path

import keras
import numpy as np

from keras_diet import metrics, models, training

FOUND = 10  # paragraphs that the embedder finds for a question
WRONG = 3  # wrong paragraphs of an example


def read_squad(file):
    """Return the paragraphs, the questions, and the index of the paragraph of each question."""
    articles = json.loads(Path(file).read_text(encoding="utf-8"))["data"]
    paragraphs = [each for article in articles for each in article["paragraphs"]]
    questions = [(qa["question"], i) for i, each in enumerate(paragraphs) for qa in each["qas"]]
    return [each["context"] for each in paragraphs], *zip(*questions, strict=True)


def load(cls, folder, **arguments):
    """Return a task with the encoder of a folder, or with the model in the package."""
    if folder is None:
        return cls.from_preset("diet_bert_tiny_en", **arguments)
    return cls.from_hugging_face(folder, **arguments)


def retrieve(embedder, questions, paragraphs):
    """Return the similarity of questions and paragraphs, and which are found, the best first."""
    of_texts = [embedder.encode_text(list(texts), verbose=0) for texts in (questions, paragraphs)]
    similarity = keras.ops.convert_to_numpy(embedder.similarity(*of_texts))
    return similarity, np.argsort(-similarity, axis=1)[:, :FOUND]


def make_examples(questions, right, found, paragraphs):
    """Return questions with lists of paragraphs, of which the first one is right."""
    lists = []
    for answer, row in zip(right, found, strict=True):
        wrong = [i for i in row if i != answer][:WRONG]
        lists.append([paragraphs[i] for i in (answer, *wrong)])
    return list(questions), lists


def rerank(reranker, questions, found, paragraphs, shape):
    """Return the scores of the paragraphs that were found. The others come last."""
    texts = [[paragraphs[i] for i in row] for row in found]
    scores = np.full(shape, -np.inf)
    np.put_along_axis(scores, found, reranker.predict((list(questions), texts), verbose=0), axis=1)
    return scores


def main(file, folder=None, number=1000, held_out=200, epochs=2, batch_size=8, rate=None):
    """Train a reranker, and compare the order of paragraphs before and after."""
    keras.utils.set_random_seed(0)
    paragraphs, questions, right = read_squad(file)
    # The last questions are about other articles than the first ones.
    questions, right = (each[:-held_out][:number] + each[-held_out:] for each in (questions, right))
    embedder = load(models.DietBertTextEmbedder, folder)
    similarity, found = retrieve(embedder, questions, paragraphs)

    reranker = load(models.DietBertTextReranker, folder)
    steps = epochs * -(-len(questions[:-held_out]) // batch_size)
    # A model that is pretrained well needs smaller steps.
    rate = rate or (3e-4 if folder is None else 3e-5)
    schedule = training.WarmupLinearDecay(rate, steps, warmup_proportion=0.1)
    reranker.compile(
        keras.optimizers.AdamW(schedule),
        # The scores of the paragraphs of a question are like the logits of classes.
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    train = slice(None, -held_out)
    examples = make_examples(questions[train], right[train], found[train], paragraphs)
    first = np.zeros(len(examples[0]), "int32")
    verbose = 1 if sys.stdout.isatty() else 2
    reranker.fit(examples, first, batch_size=batch_size, epochs=epochs, verbose=verbose)

    test = slice(-held_out, None)
    similarity, found, relevant = similarity[test], found[test], [[i] for i in right[test]]
    scores = rerank(reranker, questions[test], found, paragraphs, similarity.shape)
    results = {}
    for name, each in (("embedder", similarity), ("reranker", scores)):
        results[name] = metrics.retrieval_metrics(each, relevant, k=(1, FOUND))
        print(f"{name}: " + ", ".join(f"{key} {x:.3f}" for key, x in results[name].items()))
    best = reranker.rank(questions[-1], [paragraphs[i] for i in found[-1]], top_k=1)[0]
    print(f"\n{questions[-1]}\n  {best['score']:.2f}  {best['text']:.150}")
    return results


if __name__ == "__main__":
    main(*sys.argv[1:3])
