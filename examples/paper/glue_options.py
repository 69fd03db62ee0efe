"""The options of `finetune_glue.py`."""

import keras

from examples.paper import common
from examples.paper.common import positive_int
from examples.paper.glue_tasks import TASKS


def parse_arguments(argv=None):
    parser = common.make_parser(
        "Fine-tune several models on tasks of GLUE, and compare their metrics."
    )
    add = parser.add_argument
    add(
        "--presets",
        nargs="+",
        metavar="PRESET",
        help="folders, names or addresses of presets, for example diet_bert_tiny_en. Without them "
        "the script makes a small random model for each --position-encoding",
    )
    add(
        "--position-encoding",
        nargs="+",
        default=["diet_rel", "diet_abs", "input"],
        help="encodings of the random models",
    )
    add(
        "--tasks",
        nargs="+",
        default=["embedded"],
        choices=list(TASKS),
        help="tasks to learn. All tasks except embedded need --data",
    )
    add("--data", help="folder with GLUE's files, tfds, or datasets")
    add("--sequence-length", type=positive_int, help="tokens, by default 128, embedded 12")
    add(
        "--learning-rates", nargs="+", type=float, default=[1e-3], help="peak learning rates to try"
    )
    add("--seeds", nargs="+", type=int, default=[0, 1], help="one run for each rate and seed")
    add("--epochs", type=positive_int, default=12, help="passes over the examples")
    add("--batch-size", type=positive_int, default=32, help="examples in a batch")
    common.add_training_options(add, warmup_proportion=0.1)
    add("--examples", type=positive_int, help="most training examples; default: all")
    add(
        "--segment-encoding",
        nargs="+",
        choices=["unchanged", "per-head", "input"],
        default=["unchanged"],
        help="segments to add to presets that were pretrained without. With several values, each "
        "model is trained with each of them",
    )
    add(
        "--checkpoint-interval",
        type=positive_int,
        metavar="STEPS",
        help="also evaluate every STEPS steps, and report the best value of each run, as the paper "
        "does with 3500. Without it the model is evaluated after the last step",
    )
    common.add_strategy_option(parser)
    common.add_output_option(add, "finetune_glue", "folder for all results")
    arguments = parser.parse_args(argv)
    if arguments.data is None and set(arguments.tasks) != {"embedded"}:
        parser.error("--tasks other than embedded need --data: a folder, tfds or datasets")
    if arguments.presets is None and arguments.segment_encoding != ["unchanged"]:
        parser.error("--segment-encoding needs --presets, because the small models have segments")
    if arguments.sequence_length is None:
        arguments.sequence_length = 12 if arguments.tasks == ["embedded"] else 128
    common.check_strategy(parser, arguments)
    arguments.backend = keras.config.backend()
    return arguments
