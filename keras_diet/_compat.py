"""The private names of Keras and KerasHub that this library uses, all in this file.

`PRIVATE_NAMES` lists each name with the reason for it. A test looks every name up, so that it can
say which one a new version of Keras has dropped.
"""

import contextlib
from collections.abc import Iterator

import keras
from keras.src.backend import AutocastScope, get_keras_mask, set_keras_mask
from keras.src.random.seed_generator import global_seed_generator
from keras.src.saving.saving_lib import H5IOStore, _save_state
from keras.src.trainers.data_adapters.data_adapter_utils import (
    class_weight_to_sample_weights,
    get_tensor_spec,
)
from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
from keras_hub.src.utils.preset_utils import (
    BUILTIN_PRESETS,
    check_file_exists,
    load_json,
    register_presets,
)
from keras_hub.src.utils.tensor_utils import convert_preprocessing_outputs_python

__all__ = [
    "BUILTIN_PRESETS",
    "PRIVATE_NAMES",
    "IterableAdapter",
    "OpenMultiHeadAttention",
    "adapter_of_py_dataset",
    "autocast_disabled",
    "check_file_exists",
    "class_weight_to_sample_weights",
    "convert_preprocessing_outputs_python",
    "flatten_layers",
    "get_keras_mask",
    "global_seed",
    "keras_masks_removed",
    "load_json",
    "register_presets",
    "replace_dtype_policy",
    "saved_paths",
    "set_keras_mask",
    "variables_restored",
]

# Keys are "Class.attribute", or names in `keras.src.backend`, `keras.src.saving.saving_lib` and
# `keras.src.trainers.data_adapters`.
PRIVATE_NAMES = {
    "get_keras_mask": "Keras attaches padding masks to tensors. No public name reads them.",
    "set_keras_mask": "Attention consumes these masks. No public name clears them.",
    "AutocastScope": "Inside of a call, no public name reads a variable in its own dtype.",
    "H5IOStore": "Keras writes weights to objects of this class only.",
    "_save_state": "No public name tells under which paths the weights of a model are saved.",
    "GeneratorDataAdapter": "No public class reads a dataset of unknown length again each epoch.",
    "GeneratorDataAdapter._output_signature": "Batches may have other lengths than the first ones.",
    "PyDatasetAdapter": "Keras reads a `PyDataset` with this class.",
    "PyDatasetAdapter._output_signature": "Batches may have other lengths than the first ones.",
    "global_seed_generator": "Random operations without a seed draw from it.",
    "class_weight_to_sample_weights": "Keras applies `class_weight` to some kinds of data only.",
    "get_tensor_spec": "It makes such a signature from batches.",
    "Layer._flatten_layers": "Keras lists all nested layers publicly for models only.",
    "Layer._layers": "Without it a model on PyTorch is not constructed yet and has no layers.",
    "Layer._dtype_policy": "The public setter would change a map of policies that layers share.",
    "MultiHeadAttention._compute_attention": "Keras documents it as the method to override.",
    "MultiHeadAttention._dot_product_equation": "The products of queries and keys on several axes.",
    "MultiHeadAttention._combine_equation": "The sums of values on several axes.",
    "MultiHeadAttention._dropout_layer": "Our dropout draws the same numbers as the stock layer.",
    "MultiHeadAttention._inverse_sqrt_key_dim": "The factor of the products of queries and keys.",
    "MultiHeadAttention._flash_attention": "The argument, with Keras's global setting applied.",
    "MultiHeadAttention._sliding_window": "The argument. It has no public property.",
    "MultiHeadAttention._use_gate": "The argument. It has no public property.",
    "MultiHeadAttention._gate_dense": "The projection of the gate. It has no public property.",
    "MultiHeadAttention._kernel_initializer": "The argument. It has no public property.",
    "BUILTIN_PRESETS": "No public name tells which names of presets are taken.",
    "register_presets": "No public function registers the name of a preset.",
    "check_file_exists": "No public function looks for a file of a preset at any address.",
    "load_json": "No public function reads a file of a preset at any address.",
    "convert_preprocessing_outputs_python": "No public name tells that Grain runs a preprocessor.",
    "Preprocessor._add_missing_kwargs": "No public method sets the lengths of a new preprocessor.",
    "TextEmbedderPreprocessor._format_output": "KerasHub makes no padding mask for embedders.",
}


def global_seed():
    """Return the variable from which Keras draws numbers without a seed generator."""
    return global_seed_generator().state


def flatten_layers(layer):
    """Return `layer` and every layer below it."""
    return list(layer._flatten_layers()) if hasattr(layer, "_layers") else []


def replace_dtype_policy(layer, policy):
    """Set the dtype policy of one layer."""
    layer._dtype_policy = policy


@contextlib.contextmanager
def variables_restored(model: keras.Model) -> Iterator[None]:
    """Give the variables of a model their values back after an error in a batch of a dataset.

    On JAX, Keras takes the values out of the variables while it evaluates or predicts. It has them
    as its state only after the first batch.
    """
    if keras.config.backend() != "jax":
        yield
        return
    values = [(variable, variable.value) for variable in model.variables]
    try:
        yield
    except BaseException:
        model.jax_state_sync()
        for variable, value in values:
            # The first batch gives the memory of the values to the state.
            if not value.is_deleted():
                variable.assign(value)
        raise


def autocast_disabled():
    """Return a scope in which variables have their own dtype, also inside of a call of a layer."""
    return AutocastScope(None)


@contextlib.contextmanager
def keras_masks_removed(*tensors):
    """Yield the Keras masks of tensors, which have none in the meantime. A tensor may be `None`."""
    masks = [None if tensor is None else get_keras_mask(tensor) for tensor in tensors]
    marked = [pair for pair in zip(tensors, masks, strict=True) if pair[1] is not None]
    for tensor, _ in marked:
        set_keras_mask(tensor, None)
    try:
        yield masks
    finally:
        for tensor, mask in marked:
            set_keras_mask(tensor, mask)


class IterableAdapter(GeneratorDataAdapter):
    """Lets Keras read an iterable on every backend. Each epoch calls `iter` again.

    A subclass has `__iter__`, and `examples` to tell shapes.

    Args:
        num_batches: int or `None`. The number of batches, or `None` if it is not known.
    """

    def __init__(self, num_batches):
        # Keras's constructor would read two batches, which are needed on TensorFlow only.
        self._num_batches = num_batches
        self._output_signature = None

    def examples(self):
        """Return batches. Their sizes that differ may be different in each batch."""
        raise NotImplementedError

    def generator(self):
        """Return an iterator for one pass."""
        return iter(self)

    @property
    def num_batches(self):
        """The number of batches in a pass, or `None`."""
        return self._num_batches

    def get_tf_dataset(self):
        """Return a `tf.data.Dataset`."""
        if self._output_signature is None:
            self._output_signature = get_tensor_spec(self.examples())
        return super().get_tf_dataset()


def adapter_of_py_dataset(dataset, shuffle, examples):
    """Return what Keras makes of a `PyDataset` on TensorFlow, with the shapes of some batches.

    Sizes that differ between these batches may be different in each batch.
    """
    adapter = PyDatasetAdapter(dataset, shuffle=shuffle)
    adapter._output_signature = get_tensor_spec(examples)
    return adapter


def saved_paths(model, objects_to_skip=()):
    """Return the paths of all weights in a file of a model."""
    store = _PathStore()
    skipped = {id(each) for each in objects_to_skip}
    _save_state(model, store, assets_store=None, inner_path="", visited_saveables=skipped)
    return store.paths


class _PathStore(H5IOStore):
    """A file of weights that keeps their paths only."""

    def __init__(self):
        self.paths = set()

    def __bool__(self):
        return True

    def make(self, path, metadata=None):
        self.folder = f"{path}/vars" if path else "vars"
        return self

    def __setitem__(self, key, value):
        self.paths.add(f"{self.folder}/{key}")


class OpenMultiHeadAttention(keras.layers.MultiHeadAttention):
    """`keras.layers.MultiHeadAttention` with names for the private parts that we need."""

    @property
    def score_scale(self):
        """Factor of the products of queries and keys."""
        return self._inverse_sqrt_key_dim

    @score_scale.setter
    def score_scale(self, scale):
        self._inverse_sqrt_key_dim = scale

    @property
    def flash_attention(self):
        """`True` if flash attention is required, `False` if it is disabled, else `None`."""
        return self._flash_attention

    @flash_attention.setter
    def flash_attention(self, flash_attention):
        self._flash_attention = flash_attention

    @property
    def sliding_window(self):
        """Largest distance of a query to its keys, plus one; or `None`."""
        return self._sliding_window

    @property
    def kernel_initializer(self):
        """Initializer of the kernels."""
        return self._kernel_initializer

    @property
    def dropout_layer(self):
        """Dropout of the attention probabilities."""
        return self._dropout_layer

    @property
    def gate_dense(self):
        """Projection of the gate, or `None` without a gate."""
        return self._gate_dense if self._use_gate else None

    @property
    def equations(self):
        """The einsum equations of the scores and of the output, for several attention axes."""
        return self._dot_product_equation, self._combine_equation

    @property
    def overrides_compute_attention(self):
        """Whether a subclass brings its own `_compute_attention`, as Keras documents it."""
        return type(self)._compute_attention is not OpenMultiHeadAttention._compute_attention

    def _compute_attention(
        self,
        query,
        key,
        value,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
        use_causal_mask=False,
    ):
        return self.attend_as_stock_layer(
            query, key, value, attention_mask, training, return_attention_scores, use_causal_mask
        )

    def check_flash_attention(self, query, return_attention_scores):
        """Raise the error of Keras's layer if flash attention should return scores."""
        if self.flash_attention and return_attention_scores:
            super()._compute_attention(query, query, query, return_attention_scores=True)

    def compute_attention(self, query, key, value, mask, training, return_attention_scores):
        """Call `_compute_attention` as Keras's layer calls the method of a subclass."""
        return self._compute_attention(query, key, value, mask, training, return_attention_scores)
