"""The private names of Keras in the loop of `fit`, for a training that resumes within an epoch.

Keras gives callbacks no access to the data of `fit`, and no way to begin within an epoch.
`PRIVATE_NAMES` lists each name with the reason for it, as in `_keras.py`.
"""

import itertools

import keras
import numpy as np
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.grain_dataset_adapter import GrainDatasetAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
from keras.src.utils.rng_utils import get_random_seed

__all__ = [
    "PRIVATE_NAMES",
    "build_for_training",
    "data_of_adapter",
    "end_pass",
    "epoch_iterator_of",
    "random_seed",
    "replace_data",
    "set_first_epoch",
    "start_within_epoch",
]

# Keys are as in `_keras.py`.
PRIVATE_NAMES = {
    "ArrayDataAdapter": "Keras reads arrays with this class.",
    "ArrayDataAdapter._inputs": "The arrays. Their adapter always starts with the first batch.",
    "ArrayDataAdapter._batch_size": "The argument, or its default.",
    "ArrayDataAdapter._shuffle": "The argument. It has no public property.",
    "PyDatasetAdapter._standardize_batch": "It applies `class_weight` to a batch.",
    "GrainDatasetAdapter": "Keras reads a Grain dataset with this class.",
    "GrainDatasetAdapter._dataset": "The dataset. Its adapter always starts with the first batch.",
    "EpochIterator._current_iterator": "The iterator that several epochs of `fit` share.",
    "EpochIterator._steps_seen": "The number of batches that it has given.",
    "EpochIterator._num_batches": "The number of batches that it will give.",
    "EpochIterator._get_iterator": "It makes this iterator.",
    "EpochIterator._enumerate_iterator": "It numbers the steps of an epoch.",
    "TFEpochIterator._distribute_strategy": "TensorFlow distributes the data by its strategy.",
    "TFEpochIterator._distributed_dataset": "The dataset that TensorFlow reads in `fit`.",
    "Model._initial_epoch": "Callbacks choose the first epoch with it, as `BackupAndRestore` does.",
    "Model._symbolic_build": "On TensorFlow, metrics have no variables before the first step.",
    "get_random_seed": "The argument of `set_random_seed`. No public name tells it.",
}


def epoch_iterator_of(frame, method):
    """Return the object through which a method that runs reads its data, or `None` outside of it.

    It is a local variable of the method, which no public name gives.

    Args:
        frame: A frame of the call stack, such as `sys._getframe()`.
        method: `"fit"` or `"evaluate"`.
    """
    while frame is not None:
        if frame.f_code.co_name == method and "epoch_iterator" in frame.f_locals:
            return frame.f_locals["epoch_iterator"]
        frame = frame.f_back
    return None


def data_of_adapter(adapter):
    """Return what one of Keras's adapters reads.

    Returns:
        The kind, `"arrays"`, `"py_dataset"`, `"grain"` or `None`, and the data with the settings of
        the adapter.
    """
    if isinstance(adapter, ArrayDataAdapter):
        return "arrays", (adapter._inputs, adapter._batch_size, adapter._shuffle)
    if isinstance(adapter, PyDatasetAdapter):
        return "py_dataset", (adapter.py_dataset, adapter.shuffle, adapter._standardize_batch)
    if isinstance(adapter, GrainDatasetAdapter):
        return "grain", (adapter._dataset,)
    return None, ()


def replace_data(epoch_iterator, adapter):
    """Let the running `fit` read its epochs through an `IterableAdapter`."""
    previous, epoch_iterator.data_adapter = epoch_iterator.data_adapter, adapter
    if adapter.num_batches is not None:
        epoch_iterator._num_batches = adapter.num_batches
    if keras.config.backend() == "tensorflow":
        adapter._output_signature = _signature(previous, adapter.size_of_batches)
        strategy = epoch_iterator._distribute_strategy
        dataset = strategy.experimental_distribute_dataset(adapter.get_tf_dataset())
        epoch_iterator._distributed_dataset = dataset


def _signature(adapter, size_of_batches):
    """Return the shapes of an adapter's batches. A TPU compiles for one size of all batches."""
    import tensorflow as tf

    def with_size(spec):
        if size_of_batches is None or not isinstance(spec, tf.TensorSpec):
            return spec
        return tf.TensorSpec((size_of_batches, *spec.shape[1:]), spec.dtype)

    return tf.nest.map_structure(with_size, adapter.get_tf_dataset().element_spec)


def start_within_epoch(epoch_iterator, steps, batches_of_pass):
    """Let the next epoch of `fit` begin after some of its steps.

    Args:
        epoch_iterator: What `epoch_iterator_of` returned.
        steps: Number of steps of this epoch that were done before.
        batches_of_pass: Number of batches that the current pass over the data has given before.
    """
    is_known = epoch_iterator._num_batches is not None
    if epoch_iterator.steps_per_epoch and (batches_of_pass or is_known):
        # Keras has made the iterator before this epoch: epochs share it, and if Keras knows where a
        # pass ends, it makes the iterator of the next pass there.
        epoch_iterator._current_iterator = iter(epoch_iterator._get_iterator())
        epoch_iterator._steps_seen = batches_of_pass - steps
    number_steps = epoch_iterator._enumerate_iterator

    def remaining_steps():
        del epoch_iterator._enumerate_iterator
        # This skips the numbers of steps. It reads no data.
        done = steps // epoch_iterator.steps_per_execution
        return itertools.islice(number_steps(), done, None)

    epoch_iterator._enumerate_iterator = remaining_steps


def end_pass(epoch_iterator):
    """Let the next epoch begin with a new pass over the data.

    If Keras does not know the number of batches, it would continue with the iterator that has
    ended, and the epoch would have no steps.
    """
    if epoch_iterator._num_batches is None:
        epoch_iterator._current_iterator = None


def set_first_epoch(model, epoch):
    """Let the running `fit` begin with another epoch. `None` means its argument."""
    model._initial_epoch = epoch


def build_for_training(model, batch):
    """Create the variables of a compiled model, as `fit` does."""
    batch = keras.tree.map_structure(np.asarray, batch, none_is_leaf=False)
    model._symbolic_build(data_batch=batch)


def random_seed():
    """Return the argument of the last call of `keras.utils.set_random_seed`, or `None`."""
    return get_random_seed()
