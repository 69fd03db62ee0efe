"""The options of `pretrain_masked_lm.py`: text, model and training."""

from examples.paper import common
from examples.paper.common import positive_int
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS


def parse_arguments(argv=None):
    parser = common.make_parser("Pretrain a BERT with each of several position encodings.")
    data = parser.add_argument_group("data")
    common.add_text_options(data, held_out="every tenth document is")
    add_data_options(data.add_argument)
    add_model_options(parser.add_argument_group("model").add_argument)
    training = parser.add_argument_group("training")
    add_training_options(training.add_argument)
    common.add_strategy_option(training)
    common.add_output_option(parser.add_argument, "pretrain_masked_lm")
    parser.add_argument(
        "--overwrite", action="store_true", help="delete an earlier run in the output folder first"
    )
    arguments = parser.parse_args(argv)
    is_bert = arguments.initial_score_stddev == "bert"
    if is_bert:
        arguments.initial_score_stddev = None
    check_encoding_options(parser, arguments)
    if not is_bert:
        arguments.initial_score_stddev = arguments.initial_score_stddev or 1.0
        arguments.rank = arguments.rank or arguments.sequence_length
    common.check_strategy(parser, arguments)
    if arguments.validation_interval is None:
        arguments.validation_interval = arguments.steps // (1 if arguments.steps % 4 else 4)
    if arguments.steps % arguments.validation_interval:
        parser.error("--steps must be a multiple of --validation-interval")
    check_languages(parser, arguments)
    if arguments.document_masks and arguments.projection_dim:
        parser.error(
            "--document-masks cannot be used with --projection-dim, since a projected key mixes "
            "all tokens"
        )
    if arguments.beam and not arguments.validation_text:
        parser.error("--beam packs whole files, so it needs --text and --validation-text")
    return arguments


def check_languages(parser, arguments):
    """Add `texts`, the files of each language, and the default tokenizer."""
    languages = [language for language, *_ in arguments.language or []]
    for language, *files in arguments.language or []:
        if not files or languages.count(language) > 1:
            parser.error(
                f"--language needs a name and one or more files, once for each language. Received: "
                f"--language {' '.join([language, *files])}"
            )
    if arguments.text and languages:
        parser.error("--text and --language cannot be used together. Pass all files by language")
    arguments.texts = {language: files for language, *files in arguments.language or []}
    if not languages:
        common.check_text_options(parser, arguments)
        arguments.texts = {"": arguments.text}
    if arguments.tokenizer is None:
        arguments.tokenizer = "sentencepiece" if languages else "wordpiece"


def add_data_options(add):
    add(
        "--language",
        nargs="+",
        action="append",
        metavar=("NAME", "FILE"),
        help="name of a language and its text files. Repeat it for each language",
    )
    add(
        "--sampling-exponent",
        type=float,
        default=0.7,
        help="how sequences of languages are sampled: 1 as often as they occur, 0 equally often",
    )
    add(
        "--tokenizer",
        choices=["wordpiece", "sentencepiece"],
        help="default: wordpiece, or sentencepiece with --language",
    )
    add("--vocabulary-size", type=positive_int, default=4000, help="tokens of the tokenizer")
    add("--cased", action="store_true", help="keep upper-case letters")
    add(
        "--document-segments",
        action="store_true",
        help="put the documents in a sequence into segments 0 and 1. Without it all tokens are in "
        "segment 0, as we read appendix A of the paper",
    )
    add(
        "--document-masks",
        action="store_true",
        help="let tokens attend to their document only, and begin its positions again. In the "
        "paper the documents in a sequence see each other",
    )
    add("--sequence-length", type=positive_int, default=64, help="tokens in a sequence")
    add(
        "--beam",
        action="store_true",
        help="pack text files with Apache Beam. It needs --validation-text and keras-diet[beam]",
    )


def add_model_options(add):
    add(
        "--position-encoding",
        nargs="+",
        default=["diet_abs", "input"],
        type=common.position_encoding,
        help="train one model for each. input is BERT's encoding. docs/encodings lists the names",
    )
    add(
        "--rank",
        type=positive_int,
        help="rank of the positional scores of diet_abs; default: --sequence-length",
    )
    add(
        "--initial-score-stddev",
        type=lambda word: word if word == "bert" else float(word),
        metavar="STDDEV",
        help="standard deviation of the positional scores of DIET before training. bert means "
        "BERT's initial values, and the head size as the default rank; default: 1",
    )
    add(
        "--sharing",
        choices=["none", "head-wise", "layer-wise"],
        help="share position parameters; default: the best choice in the paper of the encoding",
    )
    add("--projection-dim", type=positive_int, help="project keys to this length; default: off")
    add(
        "--segment-encoding",
        choices=["per-head", "input", "none"],
        help="place of the segments; default: none, and with --document-segments input, or "
        "per-head for DIET without projection",
    )
    add("--num-layers", type=positive_int, default=2, help="Transformer layers")
    add("--num-heads", type=positive_int, default=4, help="attention heads")
    add("--hidden-dim", type=positive_int, default=128, help="size of the hidden states")
    add("--intermediate-dim", type=positive_int, default=512, help="feed-forward size")
    add("--dropout", type=float, default=0.1, help="dropout rate")
    add("--dtype", default="float32", help="dtype policy, for example mixed_bfloat16")


def add_training_options(add):
    add("--steps", type=positive_int, default=400, help="optimizer steps")
    add("--batch-size", type=positive_int, default=32, help="sequences in a batch")
    add("--learning-rate", type=float, default=0.0018, help="peak learning rate")
    common.add_training_options(add, warmup_proportion=0.025)
    add(
        "--validation-interval",
        type=positive_int,
        help="steps between validations, a divisor of --steps; default: a quarter or all of them",
    )
    add("--validation-batches", type=positive_int, default=50, help="most batches in a validation")
    add("--seed", type=int, default=0, help="seed of all random numbers")


def check_encoding_options(parser, arguments):
    """Refuse an option that none of the encodings uses."""
    uses = {
        "rank": lambda encoding: encoding.takes("rank"),
        "initial_score_stddev": lambda encoding: encoding.takes("initial_score_stddev"),
        "sharing": lambda encoding: arguments.sharing in encoding.sharing_modes,
        "projection_dim": lambda encoding: encoding.takes("projection_dim"),
    }
    for name, is_used in uses.items():
        value = getattr(arguments, name)
        users = [key for key, encoding in POSITION_ENCODINGS.items() if is_used(encoding)]
        if value is not None and not set(users) & set(arguments.position_encoding):
            parser.error(
                f"--{name.replace('_', '-')} {value} is only used by: {', '.join(users)}. "
                f"Received: --position-encoding {' '.join(arguments.position_encoding)}"
            )
