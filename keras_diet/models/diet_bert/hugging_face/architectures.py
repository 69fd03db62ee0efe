"""One table: how each type of Hugging Face's encoders becomes a `DietBertBackbone`.

A new type is one entry of `ARCHITECTURES`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_diet import validation
from keras_diet.types import Config

# The names of BERT's configuration. An architecture names only what it calls otherwise.
_SIZES = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
}
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_approximate",
    "gelu_fast": "gelu_approximate",
    "gelu_pytorch_tanh": "gelu_approximate",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
_THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
_OF_ENCODERS = {"is_decoder": (False, False), "add_cross_attention": (False, False)}
_ABSOLUTE = {**_OF_ENCODERS, "position_embedding_type": ("absolute", "absolute")}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """One type of encoders.

    Attributes:
        name: How the names of its classes in `transformers` begin.
        base: Name of the encoder in a model with a head. Its weights begin with it there. Empty if
            they always have the same names.
        encoder_class: How the name of the class without a head ends.
        layers: Hugging Face's layers by ours, with the names in files, which can differ from
            those in memory. `{}` is the number of the block. Several of our layers, in a tuple, are
            the parts of one layer there.
        arguments: `arguments(config)` returns the arguments of the backbone that are not in
            `sizes`.
        settings: The reverse: `settings(backbone)` returns the values of the configuration.
        when_gated: Layers with other names if the feed-forward networks are gated.
        sizes: Names in the configuration that differ from BERT's. `None` has no name there.
        activation: Name of the activation in the configuration.
        epsilon: Name of the epsilon of layer normalizations in the configuration, or `None` for
            1e-12.
        dropout: Names of dropout rates in the configuration. The first one is read.
        required: For names in the configuration, the value that the backbone computes, and the
            default of `transformers`.
        zeros: Names of weights that only the backbone or the task has, and that are zero.
        unused: Beginnings of names of weights that the encoder does not use.
        classifier: Layers of the head of a text classifier by their names here.
        masked_lm: Layers of the head of a masked language model, likewise.
        masked_lm_activation: Activation of that head, or `None` for that of the encoder.
        has_linear_heads: Whether the heads for tokens and questions are one dense layer.
        pairs_neighbors: Whether rotary positions turn the numbers `2k` and `2k + 1` of a head.
    """

    name: str
    base: str
    layers: Mapping[Any, str]
    arguments: Callable[[Config], Config]
    settings: Callable[[keras.Model], Config]
    encoder_class: str = "Model"
    when_gated: Mapping[str, str] = dataclasses.field(default_factory=dict)
    sizes: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    activation: str = "hidden_act"
    epsilon: str | None = "layer_norm_eps"
    dropout: tuple[str, ...] = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    required: Mapping[str, tuple[Any, Any]] = dataclasses.field(default_factory=dict)
    zeros: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    classifier: Mapping[str, str] = dataclasses.field(default_factory=dict)
    masked_lm: Mapping[str, str] = dataclasses.field(default_factory=dict)
    masked_lm_activation: str | None = None
    has_linear_heads: bool = True
    pairs_neighbors: bool = False

    def backbone_arguments(self, config: Config, source: str) -> Config:
        """Return the arguments of the backbone in a configuration.

        Raises:
            ValueError: If the configuration has a value that the backbone does not compute.
        """
        for name, (required, default) in self.required.items():
            received = config.get(name, default)
            if received != required:
                raise ValueError(
                    f"`{name}` must be {required!r} in the configuration of a "
                    f"{config['model_type']!r}. Received: {name}={received!r} in {source}"
                )
        activation = config.get(self.activation) or "gelu"
        validation.choice(self.activation, activation, tuple(_ACTIVATIONS))
        names = {**_SIZES, **self.sizes}
        sizes = {ours: config[theirs] for ours, theirs in names.items() if theirs is not None}
        return {
            **sizes,
            "dropout": config.get(self.dropout[0], 0.1),
            "activation": _ACTIVATIONS[activation],
            "layer_norm_epsilon": config.get(self.epsilon or "", 1e-12),
            **self.arguments(config),
        }

    def configuration(self, backbone: keras.Model) -> Config:
        """Return the configuration of a backbone, if this type computes it."""
        names = {**_SIZES, **self.sizes}
        activation = backbone.activation
        config = {
            **{name: value for name, (value, _) in self.required.items()},
            **{theirs: getattr(backbone, ours) for ours, theirs in names.items() if theirs},
            self.activation: _THEIR_ACTIVATIONS.get(activation, activation),
            **dict.fromkeys(self.dropout, backbone.dropout),
            **self.settings(backbone),
        }
        if self.epsilon is not None:
            config[self.epsilon] = backbone.encoder.layer_norm_epsilon
        return config


def architecture_of(config: Config, source: str) -> Architecture:
    """Return the entry of the table for a configuration.

    Raises:
        ValueError: If the table has no entry for its `model_type`.
    """
    model_type = str(config.get("model_type"))
    if model_type in ("deberta", "deberta-v2"):
        raise ValueError(
            f"DeBERTa cannot be read. Received: model_type={model_type!r} in {source}. Its scores "
            "have products of contents with relative positions (disentangled attention), which no "
            "encoding of this library has."
        )
    validation.choice("model_type", model_type, tuple(ARCHITECTURES))
    return ARCHITECTURES[model_type]


# === Arguments of backbones, and values of configurations ===


def _segments(config: Config) -> Config:
    return {"segment_encoding": "input", "num_segments": config.get("type_vocab_size", 2)}


def _type_vocab_size(backbone: keras.Model) -> Config:
    is_at_input = backbone.segment_encoding == "input"
    return {"type_vocab_size": backbone.num_segments if is_at_input else 0}


def _absolute(config: Config) -> Config:
    return {"position_encoding": "input", **_segments(config)}


def _counted(config: Config) -> Config:
    """Return the arguments of RoBERTa, whose positions count tokens that are not padding."""
    first = config.get("pad_token_id", 1) + 1
    length = config["max_position_embeddings"] - first
    return {**_absolute(config), "first_position": first, "max_sequence_length": length}


def _max_position_embeddings(backbone: keras.Model) -> Config:
    first = backbone.first_position or 2
    return {
        "pad_token_id": first - 1,
        "max_position_embeddings": backbone.max_sequence_length + first,
        **_type_vocab_size(backbone),
    }


def _projected(config: Config) -> Config:
    size = config.get("embedding_size") or config["hidden_size"]
    return {"embedding_dim": None if size == config["hidden_size"] else size}


def _embedding_size(backbone: keras.Model) -> Config:
    size = backbone.embedding_dim or backbone.hidden_dim
    return {"embedding_size": size, **_type_vocab_size(backbone)}


def _electra(config: Config) -> Config:
    return {**_absolute(config), **_projected(config), "pooler_activation": "gelu"}


def _mpnet(config: Config) -> Config:
    return {**_counted(config), "position_encoding": "t5_input", "segment_encoding": "none"}


def _without_segments(config: Config) -> Config:
    return {"position_encoding": "input", "segment_encoding": "none"}


def _no_settings(backbone: keras.Model) -> Config:
    return {}


def _rotary(config: Config) -> Config:
    """Return the arguments of rotary positions. One base serves all layers."""
    parameters = config.get("rope_parameters") or {"rope_theta": config["rope_theta"]}
    return {"position_encoding": "rotary", "max_wavelength": _theta(config, parameters)}


def _rope_parameters(backbone: keras.Model) -> Config:
    theta = _of_encoder(backbone, "max_wavelength")[0]
    return {
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        **_type_vocab_size(backbone),
    }


def _theta(config: Config, parameters: Config) -> float:
    # Files of transformers 4 have the scaling apart.
    parameters = {**parameters, **(config.get("rope_scaling") or {})}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    validation.choice("rope_type", kind, ("default",))
    return float(parameters["rope_theta"])


def _modernbert(config: Config) -> Config:
    number = config["num_hidden_layers"]
    every = config.get("global_attn_every_n_layers", 3)
    kinds = config.get("layer_types") or [
        "sliding_attention" if i % every else "full_attention" for i in range(number)
    ]
    parameters = {
        "full_attention": {"rope_theta": config.get("global_rope_theta", 160_000.0)},
        "sliding_attention": {"rope_theta": config.get("local_rope_theta", 10_000.0)},
        **(config.get("rope_parameters") or {}),
    }
    window = config.get("local_attention", 128) // 2 + 1
    return {
        "position_encoding": "rotary",
        "max_wavelength": [_theta(config, parameters[kind]) for kind in kinds],
        "attention_windows": [window if kind == "sliding_attention" else None for kind in kinds],
        "segment_encoding": "none",
        "gated": True,
        "use_bias": False,
        "normalization": "layer_norm_without_beta",
        "normalize_first": True,
        "normalize_inputs": False,
    }


# The defaults of `transformers` are ids of one vocabulary.
_NO_TOKENS = {f"{role}_token_id": None for role in ("pad", "bos", "eos", "cls", "sep")}


def _layer_types(backbone: keras.Model) -> Config:
    windows = _of_encoder(backbone, "attention_windows")
    thetas = _of_encoder(backbone, "max_wavelength")
    kinds = ["full_attention" if window is None else "sliding_attention" for window in windows]
    return {
        "layer_types": kinds,
        "local_attention": 2 * (next(filter(None, windows), 65) - 1),
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": theta}
            for kind, theta in zip(kinds, thetas, strict=True)
        },
        **_NO_TOKENS,
    }


def of_each_layer(name: str, value: Any, num_layers: int) -> list[Any]:
    """Return the value of an argument for each layer, from one value or a pattern."""
    pattern = value if isinstance(value, (list, tuple)) else [value]
    if name == "max_wavelength":
        pattern = [10_000.0 if each is None else each for each in pattern]
    return list(itertools.islice(itertools.cycle(pattern), num_layers))


def _of_encoder(backbone, name):
    return of_each_layer(name, getattr(backbone.encoder, name), backbone.num_layers)


def _nomic(config: Config) -> Config:
    return {**_rotary(config), **_segments(config), "gated": True, "use_bias": False}


def _gte(config: Config) -> Config:
    # Only GTE can be without segments.
    segments = _segments(config) if config["type_vocab_size"] else {"segment_encoding": "none"}
    return {**_rotary(config), **segments, "gated": True}


def _eurobert(config: Config) -> Config:
    heads = config.get("num_key_value_heads")
    if heads not in (None, config["num_attention_heads"]):
        raise ValueError(
            "Each head must have separate keys and values. Received: "
            f"num_key_value_heads={heads}, num_attention_heads={config['num_attention_heads']}"
        )
    return {
        **_rotary(config),
        "segment_encoding": "none",
        "gated": True,
        "use_bias": False,
        "normalization": "rms_norm",
        "normalize_first": True,
        "normalize_embeddings": False,
    }


def _eurobert_settings(backbone: keras.Model) -> Config:
    return {**_rope_parameters(backbone), **_NO_TOKENS}


def _t5(config: Config) -> Config:
    if config["d_kv"] * config["num_heads"] != config["d_model"]:
        raise ValueError(
            "The heads must have `d_model` numbers together. Received: "
            f"d_kv={config['d_kv']}, num_heads={config['num_heads']}, d_model={config['d_model']}"
        )
    kind = config.get("feed_forward_proj", "relu")
    validation.choice("feed_forward_proj", kind, tuple(_OF_T5))
    return {
        "position_encoding": "t5",
        "max_distance": config.get("relative_attention_max_distance", 128),
        "max_sequence_length": config.get("n_positions", 512),
        "attention_scale": 1.0,
        "segment_encoding": "none",
        "gated": kind != "relu",
        "activation": _OF_T5[kind],
        "use_bias": False,
        "normalization": "rms_norm",
        "normalize_first": True,
        "normalize_embeddings": False,
    }


# T5's gelu is the approximation.
_OF_T5 = {"relu": "relu", "gated-gelu": "gelu_approximate"}


def _feed_forward_proj(backbone: keras.Model) -> Config:
    return {
        "feed_forward_proj": "gated-gelu" if backbone.encoder.gated else "relu",
        "d_kv": backbone.hidden_dim // backbone.num_heads,
        "n_positions": backbone.max_sequence_length,
        "relative_attention_max_distance": backbone.encoder.max_distance or 128,
    }


def _roformer(config: Config) -> Config:
    activation = _ACTIVATIONS[config.get("hidden_act", "gelu")]
    return {
        "position_encoding": "rotary",
        **_projected(config),
        **_segments(config),
        "pooler_activation": activation,
    }


def _pre_norm(config: Config) -> Config:
    return {**_counted(config), "normalize_first": True}


# === Layers ===

_EMBEDDINGS = {
    "token_embedding": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embeddings_layer_norm": "embeddings.LayerNorm",
}
_BERT_BLOCK = {
    "query": "encoder.layer.{}.attention.self.query",
    "key": "encoder.layer.{}.attention.self.key",
    "value": "encoder.layer.{}.attention.self.value",
    "output": "encoder.layer.{}.attention.output.dense",
    "attention_layer_norm": "encoder.layer.{}.attention.output.LayerNorm",
    "intermediate": "encoder.layer.{}.intermediate.dense",
    "feedforward_output": "encoder.layer.{}.output.dense",
    "feedforward_layer_norm": "encoder.layer.{}.output.LayerNorm",
}
_POOLER = {"pooled_dense": "pooler.dense"}
_BERT_LM = {
    "dense": "cls.predictions.transform.dense",
    "layer_norm": "cls.predictions.transform.LayerNorm",
    "bias": "cls.predictions.bias",
}
_ROBERTA_LM = {"dense": "lm_head.dense", "layer_norm": "lm_head.layer_norm", "bias": "lm_head.bias"}
_ROBERTA_CLASSIFIER = {"pooled_dense": "classifier.dense", "output_dense": "classifier.out_proj"}
_BERT = Architecture(
    name="Bert",
    base="bert",
    layers={**_EMBEDDINGS, **_BERT_BLOCK, **_POOLER},
    arguments=_absolute,
    settings=_type_vocab_size,
    required=_ABSOLUTE,
    classifier={"output_dense": "classifier"},
    masked_lm=_BERT_LM,
)
_ROBERTA = dataclasses.replace(
    _BERT,
    name="Roberta",
    base="roberta",
    arguments=_counted,
    settings=_max_position_embeddings,
    classifier=_ROBERTA_CLASSIFIER,
    masked_lm=_ROBERTA_LM,
    masked_lm_activation="gelu",
)
_ROFORMER_LAYERS = {"embeddings_projection": "embeddings_project", **_BERT_BLOCK}

ARCHITECTURES: dict[str, Architecture] = {
    "bert": _BERT,
    "bert-generation": Architecture(
        name="BertGeneration",
        base="bert",
        layers={**_EMBEDDINGS, **_BERT_BLOCK},
        arguments=_without_segments,
        settings=_no_settings,
        encoder_class="Encoder",
        required=_ABSOLUTE,
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": dataclasses.replace(_ROBERTA, name="XLMRoberta"),
    "camembert": dataclasses.replace(_ROBERTA, name="Camembert"),
    "data2vec-text": dataclasses.replace(_ROBERTA, name="Data2VecText", base="data2vec_text"),
    "roberta-prelayernorm": dataclasses.replace(
        _ROBERTA,
        name="RobertaPreLayerNorm",
        base="roberta_prelayernorm",
        layers={
            **_EMBEDDINGS,
            **_BERT_BLOCK,
            "attention_layer_norm": "encoder.layer.{}.attention.LayerNorm",
            "feedforward_layer_norm": "encoder.layer.{}.intermediate.LayerNorm",
            "output_layer_norm": "LayerNorm",
            **_POOLER,
        },
        arguments=_pre_norm,
    ),
    "megatron-bert": dataclasses.replace(
        _BERT,
        name="MegatronBert",
        layers={
            **_BERT.layers,
            "attention_layer_norm": "encoder.layer.{}.attention.ln",
            "feedforward_layer_norm": "encoder.layer.{}.ln",
            "output_layer_norm": "encoder.ln",
        },
        arguments=lambda config: {
            **_absolute(config),
            "normalize_first": True,
            "normalize_embeddings": False,
        },
    ),
    "distilbert": Architecture(
        name="DistilBert",
        base="distilbert",
        layers={
            **_EMBEDDINGS,
            "query": "transformer.layer.{}.attention.q_lin",
            "key": "transformer.layer.{}.attention.k_lin",
            "value": "transformer.layer.{}.attention.v_lin",
            "output": "transformer.layer.{}.attention.out_lin",
            "attention_layer_norm": "transformer.layer.{}.sa_layer_norm",
            "intermediate": "transformer.layer.{}.ffn.lin1",
            "feedforward_output": "transformer.layer.{}.ffn.lin2",
            "feedforward_layer_norm": "transformer.layer.{}.output_layer_norm",
        },
        arguments=lambda config: {**_without_segments(config), "pooler_activation": "relu"},
        settings=_no_settings,
        sizes={
            "num_layers": "n_layers",
            "num_heads": "n_heads",
            "hidden_dim": "dim",
            "intermediate_dim": "hidden_dim",
        },
        activation="activation",
        epsilon=None,
        dropout=("dropout", "attention_dropout"),
        classifier={"pooled_dense": "pre_classifier", "output_dense": "classifier"},
        masked_lm={
            "dense": "vocab_transform",
            "layer_norm": "vocab_layer_norm",
            "bias": "vocab_projector.bias",
        },
    ),
    "electra": Architecture(
        name="Electra",
        base="electra",
        layers={**_EMBEDDINGS, **_ROFORMER_LAYERS},
        arguments=_electra,
        settings=_embedding_size,
        required=_ABSOLUTE,
        classifier=_ROBERTA_CLASSIFIER,
        masked_lm={
            "dense": "generator_predictions.dense",
            "layer_norm": "generator_predictions.LayerNorm",
            "bias": "generator_lm_head.bias",
        },
        masked_lm_activation="gelu",
    ),
    "mpnet": Architecture(
        name="MPNet",
        base="mpnet",
        layers={
            **_EMBEDDINGS,
            "position_bias": "encoder.relative_attention_bias",
            **_BERT_BLOCK,
            "query": "encoder.layer.{}.attention.attn.q",
            "key": "encoder.layer.{}.attention.attn.k",
            "value": "encoder.layer.{}.attention.attn.v",
            "output": "encoder.layer.{}.attention.attn.o",
            "attention_layer_norm": "encoder.layer.{}.attention.LayerNorm",
            **_POOLER,
        },
        arguments=_mpnet,
        settings=_max_position_embeddings,
        required={"relative_attention_num_buckets": (32, 32), "pad_token_id": (1, 1)},
        classifier=_ROBERTA_CLASSIFIER,
        masked_lm=_ROBERTA_LM,
        masked_lm_activation="gelu",
    ),
    "modernbert": Architecture(
        name="ModernBert",
        base="model",
        layers={
            "token_embedding": "embeddings.tok_embeddings",
            "embeddings_layer_norm": "embeddings.norm",
            ("query", "key", "value"): "layers.{}.attn.Wqkv",
            "output": "layers.{}.attn.Wo",
            "attention_layer_norm": "layers.{}.attn_norm",
            ("intermediate", "gate"): "layers.{}.mlp.Wi",
            "feedforward_output": "layers.{}.mlp.Wo",
            "feedforward_layer_norm": "layers.{}.mlp_norm",
            "output_layer_norm": "final_norm",
        },
        arguments=_modernbert,
        settings=_layer_types,
        dropout=("mlp_dropout", "attention_dropout", "embedding_dropout"),
        activation="hidden_activation",
        epsilon="norm_eps",
        required={
            **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias"), (False, False)),
            "classifier_bias": (False, False),
            "classifier_activation": ("gelu", "gelu"),
            "decoder_bias": (True, True),
        },
        zeros=("head.dense.bias", "head.norm.bias"),
        masked_lm={"dense": "head.dense", "layer_norm": "head.norm", "bias": "decoder.bias"},
        masked_lm_activation="gelu",
        has_linear_heads=False,
    ),
    "nomic_bert": Architecture(
        name="NomicBert",
        base="nomic_bert",
        layers={
            **_EMBEDDINGS,
            "embeddings_layer_norm": "emb_ln",
            ("query", "key", "value"): "encoder.layers.{}.attn.Wqkv",
            "output": "encoder.layers.{}.attn.out_proj",
            "attention_layer_norm": "encoder.layers.{}.norm1",
            "gate": "encoder.layers.{}.mlp.fc11",
            "intermediate": "encoder.layers.{}.mlp.fc12",
            "feedforward_output": "encoder.layers.{}.mlp.fc2",
            "feedforward_layer_norm": "encoder.layers.{}.norm2",
            **_POOLER,
        },
        arguments=_nomic,
        settings=_rope_parameters,
        classifier={"output_dense": "classifier"},
        masked_lm={**_BERT_LM, "layer_norm": "cls.predictions.transform.layer_norm"},
    ),
    "gte": Architecture(
        name="Gte",
        base="gte",
        layers={
            **_EMBEDDINGS,
            ("query", "key", "value"): "encoder.layer.{}.attention.qkv_proj",
            "output": "encoder.layer.{}.attention.o_proj",
            "attention_layer_norm": "encoder.layer.{}.attn_ln",
            ("gate", "intermediate"): "encoder.layer.{}.mlp.up_gate_proj",
            "feedforward_output": "encoder.layer.{}.mlp.down_proj",
            "feedforward_layer_norm": "encoder.layer.{}.mlp_ln",
            **_POOLER,
        },
        arguments=_gte,
        settings=_rope_parameters,
        zeros=("encoder.layer.{}.mlp.up_gate_proj.bias",),
        classifier={"output_dense": "classifier"},
        masked_lm={
            "dense": "lm_head.dense",
            "layer_norm": "lm_head.norm",
            "bias": "lm_head.decoder.bias",
        },
    ),
    "eurobert": Architecture(
        name="EuroBert",
        base="model",
        layers={
            "token_embedding": "embed_tokens",
            "query": "layers.{}.self_attn.q_proj",
            "key": "layers.{}.self_attn.k_proj",
            "value": "layers.{}.self_attn.v_proj",
            "output": "layers.{}.self_attn.o_proj",
            "intermediate": "layers.{}.mlp.gate_proj",
            "gate": "layers.{}.mlp.up_proj",
            "feedforward_output": "layers.{}.mlp.down_proj",
            "attention_layer_norm": "layers.{}.input_layernorm",
            "feedforward_layer_norm": "layers.{}.post_attention_layernorm",
            "output_layer_norm": "norm",
        },
        arguments=_eurobert,
        settings=_eurobert_settings,
        epsilon="rms_norm_eps",
        dropout=("attention_dropout",),
        required={"attention_bias": (False, False), "mlp_bias": (False, False)},
    ),
    "t5": Architecture(
        name="T5",
        base="",
        layers={
            "token_embedding": "shared",
            "position_bias": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
            "query": "encoder.block.{}.layer.0.SelfAttention.q",
            "key": "encoder.block.{}.layer.0.SelfAttention.k",
            "value": "encoder.block.{}.layer.0.SelfAttention.v",
            "output": "encoder.block.{}.layer.0.SelfAttention.o",
            "attention_layer_norm": "encoder.block.{}.layer.0.layer_norm",
            "intermediate": "encoder.block.{}.layer.1.DenseReluDense.wi",
            "feedforward_output": "encoder.block.{}.layer.1.DenseReluDense.wo",
            "feedforward_layer_norm": "encoder.block.{}.layer.1.layer_norm",
            "output_layer_norm": "encoder.final_layer_norm",
        },
        when_gated={
            "intermediate": "encoder.block.{}.layer.1.DenseReluDense.wi_0",
            "gate": "encoder.block.{}.layer.1.DenseReluDense.wi_1",
        },
        arguments=_t5,
        settings=_feed_forward_proj,
        sizes={
            "max_sequence_length": None,
            "num_layers": "num_layers",
            "num_heads": "num_heads",
            "hidden_dim": "d_model",
            "intermediate_dim": "d_ff",
        },
        epsilon="layer_norm_epsilon",
        dropout=("dropout_rate",),
        unused=("encoder.embed_tokens.", "decoder.", "lm_head."),
        encoder_class="EncoderModel",
        required={"relative_attention_num_buckets": (32, 32)},
    ),
    "roformer": Architecture(
        name="RoFormer",
        base="roformer",
        layers={**_EMBEDDINGS, **_ROFORMER_LAYERS},
        arguments=_roformer,
        settings=_embedding_size,
        required={**_OF_ENCODERS, "rotary_value": (False, False)},
        unused=("encoder.embed_positions.",),
        classifier=_ROBERTA_CLASSIFIER,
        masked_lm=_BERT_LM,
        pairs_neighbors=True,
    ),
}
