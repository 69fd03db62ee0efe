"""Runs `examples/finetune_glue.py` on two logical devices and on one, without dropout.

It saves the predictions of each trained model in the folder of the run, as `predictions.npy`.

KERAS_BACKEND=tensorflow python -m tests.distribution.finetune_worker OUTPUT_DIR OPTIONS ...
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.distribution.training import eager_steps

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
    evaluate = finetune_glue.evaluate
    for strategy in ("mirrored", "none"):
        folder = Path(output_dir, strategy)

        def save_and_evaluate(outputs, labels, task, folder=folder):
            np.save(folder / "predictions.npy", outputs)
            return evaluate(outputs, labels, task)

        finetune_glue.evaluate = save_and_evaluate
        with eager_steps(strategy == "none"):
            finetune_glue.main([*options, "--strategy", strategy, "--output-dir", str(folder)])


if __name__ == "__main__":
    main(*sys.argv[1:])
