"""Lesson 6: train a Transformer to translate, and translate with it.

You learn the recipe of the Transformer with positions in the scores: one tokenizer for both sides,
batches of tokens instead of sentences, label smoothing, warm-up with inverse square root, the mean
of the last weights, and beam search. The translator learns to write numbers in digits ("two hundred
and seven" becomes "2 0 7"), so nothing is downloaded. Replace `number_pairs` by two lists of texts.

    KERAS_BACKEND=jax python examples/translate.py

`examples/paper/translate.py` has options, reads files, and measures BLEU.
"""

import sys

if "--help" in sys.argv:  # before the imports, which take seconds
    sys.exit(print(__doc__))

from pathlib import Path

import keras
import numpy as np

from keras_diet import models, samplers, training

ONES = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
LENGTH = 48


def in_words(number):
    """Return a number below a million in words."""
    if number >= 1000:
        thousands, rest = divmod(number, 1000)
        joint = " and " if rest < 100 else " "
        return f"{in_words(thousands)} thousand" + (joint + in_words(rest) if rest else "")
    if number >= 100:
        hundreds, rest = divmod(number, 100)
        return f"{ONES[hundreds]} hundred" + (f" and {in_words(rest)}" if rest else "")
    if number >= 20:
        tens, rest = divmod(number, 10)
        return TENS[tens - 2] + (f" {ONES[rest]}" if rest else "")
    return ONES[number]


def number_pairs(count):
    """Return numbers in words, and the same numbers in digits."""
    rng = np.random.default_rng(0)
    # As many short numbers as long ones.
    numbers = np.unique((10 ** rng.uniform(1, 6, size=count)).astype(int))
    rng.shuffle(numbers)
    return [in_words(int(n)) for n in numbers], [" ".join(str(n)) for n in numbers]


def make_translator(tokenizer, hidden_dim):
    """Return a small Transformer with DIET-REL in the encoder and in the decoder."""
    backbone = models.DietTransformerBackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=2,
        num_heads=4,
        hidden_dim=hidden_dim,
        intermediate_dim=4 * hidden_dim,
        max_sequence_length=LENGTH,
        position_encoding="diet_rel",
    )
    preprocessor = models.DietTransformerSeq2SeqLMPreprocessor(
        tokenizer, LENGTH, LENGTH, length_buckets=(16, 24, LENGTH)
    )
    translator = models.DietTransformerSeq2SeqLM(backbone, preprocessor)
    translator.compile(
        optimizer=keras.optimizers.Adam(
            training.InverseSquareRootDecay(hidden_dim, warmup_steps=200, scale=0.4), beta_2=0.98
        ),
        loss=training.SmoothedCategoricalCrossentropy(0.1),
        sampler=samplers.BeamSearchSampler(num_beams=4),
        jit_compile=keras.config.backend() != "torch",
    )
    return translator


def main(count=12_000, held_out=200, epochs=8, hidden_dim=128, folder=None):
    """Train, translate held-out numbers, and return the share that is right."""
    keras.utils.set_random_seed(0)
    folder = Path(folder or Path("runs", "translate", keras.config.backend()))
    sources, targets = number_pairs(count)
    tokenizer = models.DietTransformerTokenizer.from_texts([*sources, *targets], 120)
    translator = make_translator(tokenizer, hidden_dim)
    pairs = sources[held_out:], targets[held_out:]
    lengths = [max(map(len, tokens)) + 1 for tokens in zip(*map(tokenizer, pairs), strict=True)]
    batches = training.TokenBatches(
        pairs,
        lengths,
        length_buckets=translator.preprocessor.length_buckets,
        tokens_per_batch=2048,
        preprocessor=translator.preprocessor,
    )
    # Each epoch's weights are kept, and the last three are averaged.
    keep = keras.callbacks.ModelCheckpoint(
        folder / "epoch_{epoch:02d}.weights.h5", save_weights_only=True
    )
    resume = training.ExactResume(folder / "checkpoints", save_every=200)
    verbose = 1 if sys.stdout.isatty() else 2
    resume.fit(translator, batches, epochs=epochs, shuffle=False, callbacks=[keep], verbose=verbose)
    training.average_weights(translator, sorted(folder.glob("epoch_*.weights.h5"))[-3:])
    translator.save_to_preset(folder / "preset")
    translations = translator.generate(sources[:held_out], batch_size=32)
    for source, translation in list(zip(sources, translations, strict=False))[:3]:
        print(f"  {source}\n    {translation}")
    right = np.mean([a == b for a, b in zip(translations, targets[:held_out], strict=True)])
    print(f"{right:.0%} of {held_out} held-out numbers are right. The preset is in {folder}.")
    return right


if __name__ == "__main__":
    main()
