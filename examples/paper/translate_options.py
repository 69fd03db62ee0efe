"""The options of `translate.py`: text, model, training and search."""

from pathlib import Path

from examples.paper import common
from examples.paper.common import positive_int


def parse_arguments(argv=None):
    parser = common.make_parser("Train a translator with DIET positions, and translate.")
    add_data_options(parser.add_argument_group("data").add_argument)
    add_model_options(parser.add_argument_group("model").add_argument)
    add_training_options(parser.add_argument_group("training").add_argument)
    add_search_options(parser.add_argument_group("translation").add_argument)
    common.add_output_option(parser.add_argument, "translate")
    parser.add_argument(
        "--overwrite", action="store_true", help="delete an earlier run in the output folder first"
    )
    arguments = parser.parse_args(argv)
    if arguments.text and not arguments.validation_text:
        parser.error("--text needs --validation-text")
    if arguments.validation_text and not arguments.text:
        parser.error("--validation-text needs --text")
    if arguments.vocabulary_size is None:
        # With 120 tokens, each word of a number is one token. All batches then have the
        # shortest length, and one shape is compiled.
        arguments.vocabulary_size = 8000 if arguments.text else 120
    return arguments


def add_data_options(add):
    files = {"nargs": 2, "type": Path, "metavar": ("SOURCE", "TARGET")}
    add(
        "--text",
        help="two UTF-8 files, line by line translations of each other. Without files the script "
        "learns to write numbers in digits",
        **files,
    )
    add("--validation-text", help="two files to measure the loss after each epoch", **files)
    add("--test-text", help="two files to measure BLEU; default: the validation text", **files)
    add(
        "--vocabulary-size",
        type=positive_int,
        help="SentencePiece tokens; default: 8000, or 120 for numbers",
    )
    add("--sequence-length", type=positive_int, default=128, help="longest sequence in tokens")


def add_model_options(add):
    add(
        "--position-encoding",
        default="diet_rel",
        type=common.position_encoding,
        help="encoding of all attention layers. docs/encodings lists the names",
    )
    add("--max-distance", type=positive_int, help="for shaw; Tensor2Tensor has 20")
    add(
        "--initial-score-stddev",
        type=float,
        help="for DIET, standard deviation of the first positional scores; default: BERT's 0.02 "
        "for each parameter",
    )
    add(
        "--no-cross-attention-positions",
        action="store_true",
        help="no positions in attention to the source, as in Tensor2Tensor",
    )
    add(
        "--post-norm",
        action="store_true",
        help="normalize after each residual connection, as Vaswani et al. (2017) and Marian do; "
        "default: before each layer, as Tensor2Tensor does",
    )
    add("--num-layers", type=positive_int, default=2, help="blocks of encoder and of decoder")
    add("--num-heads", type=positive_int, default=4, help="attention heads")
    add("--hidden-dim", type=positive_int, default=64, help="size of the hidden states")
    add("--intermediate-dim", type=positive_int, default=256, help="feed-forward size")
    add("--dropout", type=float, default=0.1, help="dropout rate")


def add_training_options(add):
    add("--epochs", type=positive_int, default=12, help="passes over the text")
    add("--tokens-per-batch", type=positive_int, default=2048, help="with padding, on each side")
    add("--learning-rate", type=float, default=0.003, help="largest learning rate")
    add("--warmup-steps", type=positive_int, default=300, help="steps up to this rate")
    add("--label-smoothing", type=float, default=0.1, help="label smoothing")
    add("--averaged-epochs", type=positive_int, default=3, help="last epochs to average")
    add("--save-every", type=positive_int, default=200, help="steps between two checkpoints")
    add("--seed", type=int, default=0, help="seed of all random numbers")


def add_search_options(add):
    add("--num-beams", type=positive_int, default=10, help="beams of the search")
    add("--length-penalty", type=float, default=0.6, help="length penalty of the search")
    add(
        "--translate",
        metavar="FILE",
        help="translate the lines of a file, or of the standard input (-), with the trained model",
    )
