"""Lesson 2: pretrain a BERT on your text, with DIET-ABS and with BERT's own positions.

You learn the steps of pretraining: text, vocabulary, packed sequences, model, schedule, a training
that an interruption does not repeat, and a preset. The text is the language reference that ships
with every Python, so nothing is downloaded. Put your own documents into `read_text`.

Both models get the same text, number of steps and seed. Learning rate and warm-up come from the
paper (Chen et al., EMNLP 2021, Table 7). To resume an interrupted run, start it again: training
continues with the next step. `examples/paper/pretrain_masked_lm.py` has options for all of this.

    KERAS_BACKEND=jax python examples/pretrain.py
"""

import sys

if "--help" in sys.argv:  # before the imports, which take seconds
    sys.exit(print(__doc__))

import itertools
from pathlib import Path
from pydoc_data.topics import topics

import keras
import numpy as np

from keras_diet import analysis, models, pretraining, training

LENGTH, BATCH_SIZE, SEED = 64, 32, 0
SIZES = {"num_layers": 2, "num_heads": 4, "hidden_dim": 128, "intermediate_dim": 512}
# Larger first scores than by default: see docs/reproduction/initial_scores.md.
POSITIONS = {"diet_abs": {"rank": LENGTH, "initial_score_stddev": 1.0}, "input": {}}


def read_text():
    """Return the documents to train on, and every tenth document. Each is a list of paragraphs.

    For text files write `list(pretraining.read_documents(["wiki.txt"]))`.
    """
    documents = [
        [" ".join(text.split()) for text in topics[name].split("\n\n") if text.strip()]
        for name in sorted(topics)
    ]
    return [each for i, each in enumerate(documents) if i % 10], documents[::10]


def make_batches(documents, tokenizer, **options):
    """Pack whole sentences into sequences, and return batches with masked words."""
    token_ids = np.stack(list(pretraining.pack_sentences(documents, tokenizer, LENGTH)))
    return pretraining.masked_lm_dataset(
        token_ids, tokenizer, BATCH_SIZE, seed=SEED, num_segments=1, **options
    )


def make_model(position_encoding, tokenizer, steps):
    """Return a small BERT. Its encoding of positions is one argument."""
    keras.utils.set_random_seed(SEED)
    backbone = models.DietBertBackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        max_sequence_length=LENGTH,
        position_encoding=position_encoding,
        segment_encoding="none",  # a single segment tells nothing
        **SIZES,
        **POSITIONS[position_encoding],
    )
    backbone.pooled_dense.trainable = False  # masked words do not use it, so it gets no gradient
    masked_lm = models.DietBertMaskedLM(backbone)
    rate = training.WarmupLinearDecay(0.0018, steps, warmup_proportion=0.025)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=0.01)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    # PyTorch's compiler takes longer than this training.
    masked_lm.compile(optimizer=optimizer, jit_compile=keras.config.backend() != "torch")
    return masked_lm


def save(masked_lm, tokenizer, folder):
    """Write a preset that fine-tuning loads by `from_preset`, and a picture of the positions."""
    masked_lm.backbone.pooled_dense.trainable = True
    masked_lm.preprocessor = models.DietBertMaskedLMPreprocessor(tokenizer, LENGTH)
    masked_lm.save_to_preset(folder / "preset")
    scores = analysis.position_scores(masked_lm.backbone)
    analysis.plot_scores(scores).savefig(folder / "position_scores.png")


def main(steps=400, epochs=8, vocabulary_size=4000, folder=None):
    """Train both models and compare their losses on held-out text."""
    folder = Path(folder or Path("runs", "pretrain", keras.config.backend()))
    documents, held_out = read_text()
    lines = itertools.chain.from_iterable(documents)
    vocabulary = pretraining.train_wordpiece_vocabulary(lines, vocabulary_size, lowercase=True)
    tokenizer = models.DietBertTokenizer(vocabulary, lowercase=True)
    batches = make_batches(documents, tokenizer, repeat=True)[:steps]
    validation = make_batches(held_out, tokenizer, shuffle=False, drop_remainder=False)
    losses = {}
    for name in POSITIONS:
        print(f"\n== {name} ({keras.config.backend()}) ==", flush=True)
        masked_lm = make_model(name, tokenizer, steps)
        history = training.ExactResume(folder / name / "checkpoints", save_every=200).fit(
            masked_lm,
            batches,
            epochs=epochs,
            steps_per_epoch=steps // epochs,
            shuffle=False,
            validation_data=validation,
            validation_steps=len(validation),
            verbose=1 if sys.stdout.isatty() else 2,
        )
        losses[name] = history.history["val_loss"]
        save(masked_lm, tokenizer, folder / name)
        for guess in masked_lm.fill_mask("the function returns a new [MASK] object .", top_k=3):
            print(f"  {guess['probability']:.2f}  {guess['text']}")
    print(f"\nValidation loss after {steps} steps, seed {SEED}:")
    print("  ".join(f"{name}: {found[-1]:.4f}" for name, found in losses.items()))
    table = np.stack([*losses.values()], axis=-1)
    np.savetxt(folder / "losses.csv", table, "%.4f", ",", header=",".join(losses), comments="")
    print(f"Presets, losses and pictures are in {folder}.")
    return losses


if __name__ == "__main__":
    main()
