"""Train a model of `translate.py` that begins with the initial weights of a Marian model.

It has the options of the example. With sinusoids and post-norm blocks, it computes the same as a
Marian model of `transformers`. So it shows how much of a difference comes from the initial weights.
`translation.py` runs this script for the row "sinusoidal_from_marian".
"""

import keras
import torch

from examples.paper import translate
from examples.paper.marian import make_marian, read_marian
from examples.paper.translate_options import parse_arguments
from keras_diet import samplers


def main(argv=None):
    arguments = parse_arguments(argv)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    train_pairs, validation_pairs, test_pairs = translate.load_text(arguments)
    tokenizer = translate.load_tokenizer(arguments, train_pairs)
    keras.utils.set_random_seed(arguments.seed)
    translator = translate.build_model(arguments, tokenizer)
    translator.backbone.set_weights(initial_weights(arguments, tokenizer))
    translate.train(translator, train_pairs, validation_pairs, arguments)
    translator.compile(
        sampler=samplers.BeamSearchSampler(arguments.num_beams, arguments.length_penalty)
    )
    translate.report_bleu(translator, *test_pairs, arguments.output_dir)


def initial_weights(arguments, tokenizer):
    """Return the weights with which `translation_peer.py` begins for this seed."""
    torch.manual_seed(arguments.seed)
    return read_marian(make_marian(arguments, tokenizer)).get_weights()


if __name__ == "__main__":
    main()
