"""`examples/finetune_glue.py` on two (logical) devices and on one, without dropout in the head.

KERAS_BACKEND=tensorflow python -m tests.distribution.finetune_worker OUTPUT_DIR OPTIONS ...
"""

import sys
from pathlib import Path

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


def main(output_dir, *options):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    import finetune_glue

    make_classifier = finetune_glue.make_classifier

    def without_dropout(*arguments):
        classifier = make_classifier(*arguments)
        classifier.output_dropout.rate = 0.0
        return classifier

    finetune_glue.make_classifier = without_dropout
    for strategy in ("mirrored", "none"):
        folder = str(Path(output_dir) / strategy)
        finetune_glue.main([*options, "--strategy", strategy, "--output-dir", folder])


if __name__ == "__main__":
    main(*sys.argv[1:])
