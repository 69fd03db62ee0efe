"""The BERT encoder with positions and segments in the attention scores."""

import os

import keras
from keras_hub.models import Backbone

from keras_diet import validation
from keras_diet._keras import forget_compiled
from keras_diet.layers.initializers import bert_initializer
from keras_diet.layers.position.input_encoding import make_input_encoding
from keras_diet.layers.position.position_encoding import (
    EncoderSizes,
    deserialize_position_encoding,
    serialize_position_encoding,
)
from keras_diet.layers.transformer.diet_encoder import DietEncoder
from keras_diet.layers.transformer.position_encodings import find_position_encoding
from keras_diet.models.diet_bert.damaged_files import complete_file, complete_preset
from keras_diet.models.diet_bert.from_bert.convert import convert_bert
from keras_diet.models.diet_bert.layout_map import diet_bert_layout_map
from keras_diet.models.diet_bert.lora import (
    check_enable_lora,
    check_same_layers,
    check_shapes,
    enabled_layers,
    layers_with_weights,
    names_of_adapters,
    saved_adapters,
)
from keras_diet.models.diet_bert.preset_folder import new_preset
from keras_diet.models.diet_bert.preset_metadata import write_library_metadata
from keras_diet.models.diet_bert.quantized_policies import (
    dtype_to_load,
    give_layers_their_policies,
    policy_to_save,
)


@keras.saving.register_keras_serializable(package="keras_diet")
def gelu_approximate(x):
    """BERT's activation, gelu in its tanh approximation."""
    return keras.activations.gelu(x, approximate=True)


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertBackbone(Backbone):
    """A BERT encoder whose positions and segments go to the attention scores (DIET).

    Inputs, outputs and conventions are those of `keras_hub.models.BertBackbone`:

        x = Dropout(LayerNorm(E[token_ids] + positions and segments, where they are at the input))
        sequence_output = DietEncoder(x)
        pooled_output = tanh(W sequence_output[:, 0] + b)

    With `position_encoding="input"` and `segment_encoding="input"` it is that BERT, weight by
    weight and in the same order. See `keras_diet.layers.DietEncoder` for the equations.

    Args:
        vocabulary_size: int. Size of the token vocabulary.
        num_layers: int. Number of Transformer layers.
        num_heads: int. Number of attention heads; must divide `hidden_dim`.
        hidden_dim: int. Size of the hidden states and of the pooler.
        intermediate_dim: int. Width of the feed-forward networks.
        dropout: float. Dropout rate. Defaults to `0.1`.
        max_sequence_length: int. Longest sequence, in tokens. Defaults to `512`.
        num_segments: int. Number of segments. Defaults to `2`.
        position_encoding: `"diet_abs"`, `"diet_rel"`, `"t5"`, `"tupe_abs"`, `"tupe_rel"`, `"shaw"`,
            `"input"`, `"diet_abs_input"`, `"sinusoidal"`, `"none"`, a name that you registered
            (`keras_diet.layers.register_position_encoding`), or a bias layer of your own. Defaults
            to `"diet_abs"`.
        rank: int or `None`. Rank `d_p` of the positional scores of `"diet_abs"` and
            `"diet_abs_input"`. Defaults to `None`, which means the head size; the paper's best
            model uses 128.
        sharing: `"none"`, `"head-wise"`, `"layer-wise"`, or `None` for what the encoding's paper
            found best: `"none"` for `"diet_rel"`, `"head-wise"` for `"shaw"`, which knows no other,
            and `"layer-wise"` for the others that score positions. Defaults to `None`.
        segment_encoding: `"per-head"`, `"input"`, or `"none"`, with which `segment_ids` are
            accepted and not used. Defaults to `"per-head"`.
        projection_dim: int or `None`. Number of projected keys and values of Linformer, whose cost
            is linear in the length; with `"diet_abs"`, `"diet_abs_input"`, `"input"`,
            `"sinusoidal"` or `"none"`, and segments not per head. Defaults to `None`: no
            projection.
        dtype: A dtype or `keras.DTypePolicy` for computations and weights. Softmax and layer
            normalization are computed in float32 regardless. Defaults to `None`, which means
            Keras's global policy.
        attention_implementation: `"full"`, all scores of a layer at once and positional scores
            shared between layers; `"features"`, positions of low rank, segments and padding as
            features of one dot-product attention, for fused kernels; `"blockwise"`, the scores of
            256 queries at a time, in memory linear in the length; or `"auto"`, which chooses by
            length and backend (docs/performance.md). Outputs are the same; scores that are asked
            for are always computed in full. Defaults to `"auto"`.
        activation: Activation of the feed-forward networks, by name or as a function. Defaults to
            `"gelu_approximate"`, as in KerasHub's BERT; Hugging Face's has `"gelu"`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves what is frozen frozen.

    Call arguments:
        inputs: A dictionary of integer tensors of shape `(B, T)`: `"token_ids"`,
            `"segment_ids"` in `[0, num_segments)`, and `"padding_mask"` with 1 for tokens and 0
            for padding.

    Returns:
        A dictionary: `"sequence_output"` of shape `(B, T, hidden_dim)` and `"pooled_output"` of
        shape `(B, hidden_dim)`.

    Raises:
        ValueError: For sizes that are not positive, heads that do not divide `hidden_dim`,
            unknown names, `rank`, `sharing` or `projection_dim` where they have no meaning, and
            sequences longer than `max_sequence_length`.
        TypeError: For unknown arguments.

    Example:

    ```python
    backbone = keras_diet.models.DietBertBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16, position_encoding="diet_abs", rank=16,
    )
    outputs = backbone({
        "token_ids": np.ones((1, 12), dtype="int32"),
        "segment_ids": np.array([[0] * 5 + [1] * 7]),
        "padding_mask": np.array([[1] * 10 + [0] * 2]),
    })
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/)
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
    """

    def __init__(
        self,
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        dropout=0.1,
        max_sequence_length=512,
        num_segments=2,
        position_encoding="diet_abs",
        rank=None,
        sharing=None,
        segment_encoding="per-head",
        projection_dim=None,
        dtype=None,
        attention_implementation="auto",
        activation="gelu_approximate",
        name=None,
        trainable=None,
    ):
        validation.positive_int("vocabulary_size", vocabulary_size)
        validation.positive_int("num_heads", num_heads)
        validation.positive_int("hidden_dim", hidden_dim)
        validation.positive_int("max_sequence_length", max_sequence_length)
        validation.divisible_heads(hidden_dim, num_heads)
        sizes = EncoderSizes(
            num_layers, num_heads, hidden_dim, max_sequence_length, rank, projection_dim
        )
        segments_at_input = segment_encoding == "input"

        # === Layers ===
        self.token_embedding = keras.layers.ReversibleEmbedding(
            input_dim=vocabulary_size,
            output_dim=hidden_dim,
            embeddings_initializer=bert_initializer(),
            dtype=dtype,
            name="token_embedding",
        )
        # BERT adds these before the layer normalization, so not in the encoder.
        self.input_encoding = make_input_encoding(
            find_position_encoding(position_encoding, rank, sharing, projection_dim),
            sizes,
            num_segments if segments_at_input else None,
            dtype=dtype,
        )
        self.embeddings_layer_norm = keras.layers.LayerNormalization(
            epsilon=1e-12, dtype=dtype, name="embeddings_layer_norm"
        )
        self.embeddings_dropout = keras.layers.Dropout(
            dropout, dtype=dtype, name="embeddings_dropout"
        )
        self.encoder = DietEncoder(
            num_layers,
            num_heads,
            intermediate_dim,
            position_encoding=position_encoding,
            rank=rank,
            sharing=sharing,
            segment_encoding=segment_encoding,
            num_segments=num_segments,
            max_sequence_length=max_sequence_length,
            dropout=dropout,
            activation=gelu_approximate if activation == "gelu_approximate" else activation,
            layer_norm_epsilon=1e-12,
            kernel_initializer=bert_initializer(),
            projection_dim=projection_dim,
            attention_implementation=attention_implementation,
            encode_inputs=False,
            dtype=dtype,
            name="encoder",
        )
        self.pooled_dense = keras.layers.Dense(
            hidden_dim,
            activation="tanh",
            kernel_initializer=bert_initializer(),
            dtype=dtype,
            name="pooled_dense",
        )

        # === Functional Model ===
        token_ids = keras.Input(shape=(None,), dtype="int32", name="token_ids")
        segment_ids = keras.Input(shape=(None,), dtype="int32", name="segment_ids")
        padding_mask = keras.Input(shape=(None,), dtype="int32", name="padding_mask")
        x = self.token_embedding(token_ids)
        if self.input_encoding is not None:
            x = self.input_encoding(x, segment_ids=segment_ids if segments_at_input else None)
        x = self.embeddings_layer_norm(x)
        x = self.embeddings_dropout(x)
        x = self.encoder(
            x,
            segment_ids=segment_ids if segment_encoding == "per-head" else None,
            padding_mask=padding_mask,
        )
        cls_token_index = 0
        super().__init__(
            inputs={
                "token_ids": token_ids,
                "segment_ids": segment_ids,
                "padding_mask": padding_mask,
            },
            outputs={
                "sequence_output": x,
                "pooled_output": self.pooled_dense(x[:, cls_token_index, :]),
            },
            dtype=dtype,
            name=name,
            trainable=trainable,
        )
        give_layers_their_policies(self)
        if trainable is False:
            # On PyTorch the layers are known from here on only.
            self.trainable = False

        # === Config ===
        self.vocabulary_size = vocabulary_size
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.max_sequence_length = max_sequence_length
        self.num_segments = num_segments
        self.position_encoding = position_encoding
        self.rank = rank
        self.sharing = sharing
        self.segment_encoding = segment_encoding
        self.projection_dim = projection_dim
        self.attention_implementation = attention_implementation
        self.activation = activation if isinstance(activation, str) else self.encoder.activation
        self.cls_token_index = cls_token_index

    def load_weights(self, filepath, *args, **kwargs):
        """Load weights, as `keras.Model.load_weights`; a damaged file is a `ValueError`."""
        with complete_file(filepath):
            return super().load_weights(filepath, *args, **kwargs)

    def save_to_preset(self, preset_dir, max_shard_size=10):
        """Save the backbone as a preset, as `keras_hub.models.Backbone.save_to_preset`.

        Args:
            preset_dir: The folder. A preset in it is replaced.
            max_shard_size: Largest size of a file of weights in GB. Defaults to `10`.
        """
        with new_preset(preset_dir) as folder:
            super().save_to_preset(folder, max_shard_size=max_shard_size)
            write_library_metadata(folder, type(self))

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """Load the backbone from a preset, as `keras_hub.models.Backbone.from_preset`.

        Args:
            preset: A folder, an address (`"hf://..."`, `"kaggle://..."`), or a registered name.
            load_weights: bool. Whether to load the weights. Defaults to `True`.
            **kwargs: Arguments of the constructor to change, and `dtype`, by default the one that
                was saved if it is mixed or quantized, else Keras's global policy.

        Raises:
            ValueError: If files are missing or damaged, or if a quantized model is asked for in
                another `dtype`.
        """
        preset = os.fspath(preset)
        with complete_preset(preset):
            kwargs["dtype"] = dtype_to_load(preset, kwargs.get("dtype"))
            return super().from_preset(preset, load_weights=load_weights, **kwargs)

    def enable_lora(self, rank, target_layer_names=None):
        """Freeze the backbone and train low-rank updates of some kernels instead (LoRA).

        As `keras_hub.models.Backbone.enable_lora`, but that the biases of these layers are frozen
        too: `save_lora_weights` does not write them.

        Args:
            rank: int. Rank of the updates.
            target_layer_names: list of str or `None`. Names of the layers with updates. Defaults
                to `None`, which means the `"query"` and `"value"` projections.

        Raises:
            ValueError: If `rank` is no positive integer, a name is that of no dense layer, or LoRA
                is enabled already. Then nothing is changed.

        Example:

        ```python
        backbone = keras_diet.models.DietBertBackbone(
            vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64
        )
        backbone.enable_lora(rank=4)
        backbone.save_lora_weights("task.lora.h5")
        ```

        References:
         - [Hu et al., 2021](https://arxiv.org/abs/2106.09685)
        """
        check_enable_lora(self, rank, target_layer_names)
        super().enable_lora(rank, target_layer_names)
        layers = layers_with_weights(self)
        for index in enabled_layers(self):
            if layers[index].bias is not None:
                layers[index].bias.trainable = False
        forget_compiled(self)

    def load_lora_weights(self, filepath):
        """Load the adapters of a `.lora.h5`, as `keras_hub.models.Backbone.load_lora_weights`.

        Where LoRA is not enabled yet, it is for the layers and with the rank of the file; KerasHub
        enables the default layers, and drops the adapters of others.

        Args:
            filepath: A file of `save_lora_weights`.

        Raises:
            ValueError: If the file is damaged, or has adapters of another rank or size or in other
                layers than the backbone.

        Example:

        ```python
        sizes = dict(
            vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64
        )
        adapted = keras_diet.models.DietBertBackbone(**sizes)
        adapted.enable_lora(rank=4, target_layer_names=["query", "key", "value"])
        adapted.save_lora_weights("task.lora.h5")
        backbone = keras_diet.models.DietBertBackbone(**sizes)
        backbone.load_lora_weights("task.lora.h5")
        ```
        """
        rank, saved = saved_adapters(filepath)
        enabled = enabled_layers(self)
        names = names_of_adapters(self, filepath, saved)
        if enabled:
            check_same_layers(filepath, saved, enabled)
        check_shapes(self, filepath)
        if not enabled:
            self.enable_lora(rank, names)
        super().load_lora_weights(filepath)

    def quantize(self, mode=None, config=None, filters=None, **kwargs):
        """Quantize the backbone, as `keras.Model.quantize`; models that hold it compile anew.

        Args:
            mode: `"int8"`, `"int4"`, `"float8"`, ..., or `None` with `config`.
            config: A `keras.quantizers.QuantizationConfig`, or `None` for that of the mode.
            filters: As in `keras.Model.quantize`: which layers are quantized. Defaults to `None`,
                all that can be.
            **kwargs: Keyword arguments of `keras.Model.quantize`.

        Raises:
            ValueError: If there is no such mode, or the model is quantized already.
        """
        super().quantize(mode, config=config, filters=filters, **kwargs)
        forget_compiled(self)

    def get_config(self):
        """Return the constructor's arguments."""
        # KerasHub's own, but for the dtype: it would erase the names of the layers' policies.
        config = {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(policy_to_save(self)),
        }
        config.update(
            {
                "vocabulary_size": self.vocabulary_size,
                "num_layers": self.num_layers,
                "num_heads": self.num_heads,
                "hidden_dim": self.hidden_dim,
                "intermediate_dim": self.intermediate_dim,
                "dropout": self.dropout,
                "max_sequence_length": self.max_sequence_length,
                "num_segments": self.num_segments,
                "position_encoding": serialize_position_encoding(self.position_encoding),
                "rank": self.rank,
                "sharing": self.sharing,
                "segment_encoding": self.segment_encoding,
                "projection_dim": self.projection_dim,
                "attention_implementation": self.attention_implementation,
                "activation": self.activation
                if isinstance(self.activation, str)
                else keras.activations.serialize(self.activation),
            }
        )
        return config

    @classmethod
    def from_bert(
        cls,
        bert,
        position_encoding="diet_abs",
        rank=None,
        sharing=None,
        segment_encoding=None,
        max_sequence_length=None,
        cls_token_id=None,
        **kwargs,
    ):
        """Start from BERT: build a backbone out of the weights of a trained one.

        With `position_encoding="input"` it has the outputs of that BERT. Otherwise it is a start
        for training: positions leave the input, and what they alone score in each layer and head
        of the BERT,

            B_ij = (p_i W_Q) . (p_j W_K) / sqrt(d_h)

        with the part `p_i` of the hidden states that comes from position `i`, goes to `P_Q` and
        `P_K` (a truncated singular value decomposition) or `R` (the means of its diagonals).
        Segments have `E_S` in the same way. The means of the embeddings that leave the input are
        added to the token embeddings, and to that of `[CLS]` its own position, the first.

        Args:
            bert: A `keras_hub.models.BertBackbone`, a task with one, the address of a preset of
                one, or a folder with Hugging Face's `config.json` and `model.safetensors`.
            position_encoding: `"diet_abs"`, `"diet_rel"`, `"input"`, `"none"`, or
                `"diet_abs_input"`, whose scores start at zero. Defaults to `"diet_abs"`.
            rank: As in the class. The term has the rank of a head's size. Defaults to `None`.
            sharing: As in the class. What shares its parameters has the mean of the terms times
                the share of them that it keeps, with the heads of each layer put into an order in
                which layers are alike; `"none"` keeps the most. Defaults to `None`.
            segment_encoding: As in the class. Defaults to `None`: `"input"` where positions stay
                there, which is what BERT has, and `"per-head"` otherwise.
            max_sequence_length: int or `None`. Number of positions, from the first on; the BERT
                must have as many. Defaults to `None`, all of them.
            cls_token_id: int or `None`. The token that every sequence starts with. Defaults to
                `None`: that of the vocabulary in the folder, preset or task, and none for a
                backbone, which has no vocabulary.
            **kwargs: `dropout` and `dtype`, by default those of the BERT (for Hugging Face's,
                Keras's global policy), `attention_implementation`, `name` and `trainable`, as in
                the class.

        Returns:
            A `DietBertBackbone`.

        Raises:
            ValueError: If `bert` is none of these, is a checkpoint of another architecture or with
                an activation that is not known, is incomplete, or has a vocabulary that does not
                fit; for other encodings; and as the class.

        Example:

        ```python
        bert = keras_hub.models.BertBackbone(
            vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
            max_sequence_length=16,
        )
        backbone = keras_diet.models.DietBertBackbone.from_bert(bert, "diet_abs", sharing="none")
        ```
        """
        names = {"position_encoding": position_encoding, "segment_encoding": segment_encoding}
        sizes = {"rank": rank, "sharing": sharing, "max_sequence_length": max_sequence_length}
        return convert_bert(cls, bert, **names, **sizes, cls_token_id=cls_token_id, **kwargs)

    @staticmethod
    def get_layout_map(
        device_mesh, model_parallel_dim_name="model", data_parallel_dim_name="batch"
    ):
        """Return how `keras.distribution.ModelParallel` splits the weights over devices.

        Projections of attention are split by heads, and the layers of the feed-forward networks by
        their inner axis, so that a layer needs one sum over devices for each. Token embeddings
        are split by `hidden_dim`: the vocabulary of BERT, 30522, does not divide by 4. What is
        split over the model axis is split once more over the data axis, along `hidden_dim`, to
        save memory. All else is replicated: positions and segments are small, an embedding that
        the heads share cannot be split by heads, and a device reads what its own heads need from
        its copy.

        Devices along the model axis must divide `num_heads`, `hidden_dim` and `intermediate_dim`;
        along the data axis, `hidden_dim` and the batch.

        Args:
            device_mesh: A `keras.distribution.DeviceMesh` with both axes.
            model_parallel_dim_name: str. Axis of the mesh over which a layer is split. Defaults
                to `"model"`.
            data_parallel_dim_name: str. Axis of the mesh over which the batch is split. Defaults
                to `"batch"`.

        Returns:
            A `keras.distribution.LayoutMap` for backbones and tasks with any encoding.

        Raises:
            ValueError: If `device_mesh` is no mesh, has no axis of these names, or the names are
                the same.

        Example:

        ```python
        # keras.distribution.list_devices() where there are devices.
        devices = [f"cpu:{i}" for i in range(8)]
        mesh = keras.distribution.DeviceMesh((2, 4), ("batch", "model"), devices)
        layout_map = keras_diet.models.DietBertBackbone.get_layout_map(mesh)
        ```
        """
        return diet_bert_layout_map(device_mesh, model_parallel_dim_name, data_parallel_dim_name)

    @classmethod
    def from_config(cls, config):
        """Build the backbone from its configuration, a bias layer of the user's own included."""
        return super().from_config(deserialize_position_encoding(config))
