"""Runs a module as if TensorFlow were not installed, which also saves the time of its import:

KERAS_BACKEND=jax python -m tests.without_tensorflow tests.without_tensorflow.worker
"""

import runpy
import sys

# With `None` in `sys.modules`, importing a package fails as if it were not installed.
sys.modules["tensorflow"] = sys.modules["tensorflow_text"] = None
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
