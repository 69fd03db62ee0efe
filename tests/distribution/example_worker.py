"""`examples/pretrain_masked_lm.py` on a machine with two (logical) devices.

KERAS_BACKEND=tensorflow python -m tests.distribution.example_worker --strategy mirrored ...
"""

import runpy
import sys
from pathlib import Path

import tensorflow as tf

SCRIPT = Path(__file__).parents[2] / "examples" / "pretrain_masked_lm.py"

if __name__ == "__main__":
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    runpy.run_path(str(SCRIPT))["main"](sys.argv[1:])
