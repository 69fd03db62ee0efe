"""One table: how each type of Hugging Face's encoders becomes a `DietBertBackbone`.

A new type is one entry of `ARCHITECTURES`. What it leaves out is as in BERT.
"""

import dataclasses
import math

from keras_diet import validation
from keras_diet.models.diet_bert.hugging_face.architecture import ACTIVATIONS, Architecture, Field
from keras_diet.types import Config

# === Constants and fields ===

_AT_INPUT = {"position_encoding": "input", "segment_encoding": "input"}
_WITHOUT_SEGMENTS = {"position_encoding": "input", "segment_encoding": "none"}
_ENCODER = {"is_decoder": False, "add_cross_attention": False}
_ABSOLUTE = {**_ENCODER, "position_embedding_type": "absolute"}
_PRE_NORM = {"normalize_first": True, "normalize_embeddings": False}
_RMS_NORM = {**_PRE_NORM, "normalization": "rms_norm", "use_bias": False}
_GATED_ROTARY = {"position_encoding": "rotary", "gated": True, "use_bias": False}
_NO_SEGMENTS_IF_0 = Field(
    read=lambda config: (
        {} if config["type_vocab_size"] else {"segment_encoding": "none", "num_segments": 2}
    )
)
_NO_PROJECTION_OF_EQUAL_SIZE = Field(
    read=lambda config: (
        {"embedding_dim": None} if config["embedding_size"] == config["hidden_size"] else {}
    )
)
_POOLER_AS_ENCODER = Field(
    read=lambda config: {"pooler_activation": ACTIVATIONS[config["hidden_act"]]}
)
# The positions of RoBERTa count tokens that are not padding.
_COUNTED_POSITIONS = Field(
    lambda config: {
        "first_position": config["pad_token_id"] + 1,
        "max_sequence_length": config["max_position_embeddings"] - config["pad_token_id"] - 1,
    },
    lambda arguments: {
        "pad_token_id": (arguments["first_position"] or 2) - 1,
        "max_position_embeddings": arguments["max_sequence_length"]
        + (arguments["first_position"] or 2),
    },
)


def _read_rotary(config: Config, parameters: Config) -> Config:
    """Return the arguments of a layer by a dictionary of rotary positions."""
    # `"type"` is an older name of `"rope_type"`. `transformers` may have added another one.
    kind = parameters["rope_type"]
    validation.choice("rope_type", kind, (parameters.get("type", kind),))
    scaling = {name: parameters[name] for name in parameters.keys() - {"rope_theta", "type"}}
    arguments = {"max_wavelength": float(parameters["rope_theta"]), "rope_scaling": scaling}
    if kind == "default":
        arguments["rope_scaling"] = None
    elif kind == "dynamic":
        # The configuration has the length of the training only.
        trained = config["max_position_embeddings"]
        scaling["original_max_position_embeddings"] = trained
        arguments["max_sequence_length"] = math.ceil(scaling["factor"] * trained)
    return arguments


def _write_rotary(base: float, scaling: Config | None) -> Config:
    return {"rope_theta": base, **(scaling or {"rope_type": "default"})}


def _write_rotary_of_all_layers(arguments: Config) -> Config:
    scaling = arguments["rope_scaling"][0]
    config = {"rope_parameters": _write_rotary(arguments["max_wavelength"][0], scaling)}
    if scaling is not None and scaling["rope_type"] == "dynamic":
        config["max_position_embeddings"] = scaling["original_max_position_embeddings"]
    return config


# One base serves all layers.
_ROTARY_POSITIONS = Field(
    lambda config: _read_rotary(config, config["rope_parameters"]), _write_rotary_of_all_layers
)

_ONE_WAVELENGTH = Field(
    lambda config: {"max_wavelength": float(config["rope_theta"])},
    lambda arguments: {"rope_theta": arguments["max_wavelength"][0]},
)
# ESM drops masked words, and scales the other ones.
_DROPPED_MASKS = Field(
    lambda config: {
        "dropped_token": config["mask_token_id"] if config.get("token_dropout") else None
    },
    lambda arguments: {
        "token_dropout": arguments["dropped_token"] is not None,
        "mask_token_id": arguments["dropped_token"],
        # `transformers` needs one.
        "pad_token_id": 1,
    },
)


def _read_distances(config: Config) -> Config:
    terms = "|".join(sorted(config.get("pos_att_type", [])))
    validation.choice("pos_att_type", terms, ("c2p|p2c",))
    largest = config["max_relative_positions"]
    return {"max_distance": largest if largest > 0 else config["max_position_embeddings"]}


_DISTANCES = Field(
    _read_distances,
    lambda arguments: {
        "pos_att_type": ["p2c", "c2p"],
        "max_relative_positions": arguments["max_distance"],
    },
)


def _read_layer_types(config: Config) -> Config:
    kinds, window = config["layer_types"], config["local_attention"] // 2 + 1
    of_layers = [_read_rotary(config, config["rope_parameters"][kind]) for kind in kinds]
    scalings = [each["rope_scaling"] for each in of_layers]
    return {
        "max_wavelength": [each["max_wavelength"] for each in of_layers],
        "rope_scaling": scalings if any(scalings) else None,
        "attention_windows": [window if kind == "sliding_attention" else None for kind in kinds],
    }


def _write_layer_types(arguments: Config) -> Config:
    windows = arguments["attention_windows"]
    rotary = map(_write_rotary, arguments["max_wavelength"], arguments["rope_scaling"])
    kinds = ["full_attention" if window is None else "sliding_attention" for window in windows]
    return {
        "layer_types": kinds,
        "local_attention": 2 * (next(filter(None, windows), 65) - 1),
        "rope_parameters": dict(zip(kinds, rotary, strict=True)),
    }


# T5's gelu is the approximation.
_OF_T5 = {
    "relu": {"gated": False, "activation": "relu"},
    "gated-gelu": {"gated": True, "activation": "gelu_approximate"},
}
_FEED_FORWARD = Field(
    lambda config: _OF_T5[
        validation.choice("feed_forward_proj", config["feed_forward_proj"], tuple(_OF_T5))
    ],
    lambda arguments: {"feed_forward_proj": "gated-gelu" if arguments["gated"] else "relu"},
)
_OF_JINA = {"geglu": "gelu", "reglu": "relu"}


def _read_jina(config: Config) -> Config:
    gates = validation.choice("feed_forward_type", config["feed_forward_type"], tuple(_OF_JINA))
    return {"activation": _OF_JINA[gates]}


def _write_jina(arguments: Config) -> Config:
    code = "jinaai/jina-bert-implementation--"
    classes = {
        "AutoModel" + head.removeprefix("Model"): f"{code}modeling_bert.JinaBert{head}"
        for head in ("Model", *_BERT.heads)
    }
    return {
        "feed_forward_type": "reglu" if arguments["activation"] == "relu" else "geglu",
        # With `trust_remote_code=True`, `transformers` reads it so. Otherwise it reads a BERT.
        "auto_map": {"AutoConfig": f"{code}configuration_bert.JinaBertConfig", **classes},
    }


_JINA = Field(_read_jina, _write_jina)
_ROLES = ("pad", "bos", "eos", "cls", "sep")
# The defaults of `transformers` are ids of one vocabulary.
_NO_TOKENS = Field(write=lambda arguments: {f"{role}_token_id": None for role in _ROLES})

# === Layers ===


def _in(module: str, **layers: str) -> dict[str, str]:
    """Return the names of layers in a module, by our names."""
    return {name: f"{module}.{layer}" for name, layer in layers.items()}


_EMBEDDINGS = {
    "token_embedding": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embeddings_layer_norm": "embeddings.LayerNorm",
}
_BERT_ATTENTION = {
    **_in("encoder.layer.{}.attention.self", query="query", key="key", value="value"),
    **_in("encoder.layer.{}.attention.output", output="dense", attention_layer_norm="LayerNorm"),
}
_BERT_BLOCK = {
    **_BERT_ATTENTION,
    "intermediate": "encoder.layer.{}.intermediate.dense",
    **_in(
        "encoder.layer.{}.output", feedforward_output="dense", feedforward_layer_norm="LayerNorm"
    ),
}
_POOLER = {"pooled_dense": "pooler.dense"}
_BERT_LAYERS = _EMBEDDINGS | _BERT_BLOCK | _POOLER

# === Heads ===


def _masked_lm(dense: str, layer_norm: str, bias: str) -> dict[str, dict[str, str]]:
    return {"ForMaskedLM": {"dense": dense, "layer_norm": layer_norm, "bias": bias}}


def _classifier(pooled_dense: str, output_dense: str) -> dict[str, dict[str, str]]:
    """Return a classifier of texts that has a pooler."""
    layers = {"pooled_dense": pooled_dense, "output_dense": output_dense}
    return {"ForSequenceClassification": layers}


_BERT_LM = _masked_lm(
    "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"
)
_ROBERTA_LM = _masked_lm("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")
_ROBERTA_CLASSIFIER = _classifier("classifier.dense", "classifier.out_proj")
_TOKEN_CLASSIFIER = {"ForTokenClassification": {"output_dense": "classifier"}}
_CLASSIFIERS = _TOKEN_CLASSIFIER | {"ForSequenceClassification": {"output_dense": "classifier"}}
_HEADS = _CLASSIFIERS | {"ForQuestionAnswering": {"output_dense": "qa_outputs"}}

# === Types ===

_BERT = Architecture(
    name="Bert",
    base="bert",
    layers=_BERT_LAYERS,
    constants=_AT_INPUT,
    required=_ABSOLUTE,
    heads=_HEADS | _BERT_LM,
)
_ROBERTA = dataclasses.replace(
    _BERT,
    name="Roberta",
    base="roberta",
    fields=(_COUNTED_POSITIONS,),
    heads=_HEADS | _ROBERTA_CLASSIFIER | _ROBERTA_LM,
    masked_lm_activation="gelu",
)
_PROJECTIONS = ("query", "key", "value")
_DEBERTA_ATTENTION = "encoder.layer.{}.attention.self"
_OF_DEBERTA = {
    "relative_attention": True,
    "position_biased_input": False,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
    "embedding_size": lambda config: config["hidden_size"],
}
_DEBERTA = Architecture(
    name="DebertaV2",
    base="deberta",
    layers={
        "token_embedding": "embeddings.word_embeddings",
        "embeddings_layer_norm": "embeddings.LayerNorm",
        "position_table": "encoder.rel_embeddings",
        **{name: theirs for name, theirs in _BERT_BLOCK.items() if name not in _PROJECTIONS},
    },
    constants={
        "position_encoding": "deberta",
        "segment_encoding": "none",
        "layer_norm_epsilon": 1e-7,
    },
    names={"layer_norm_epsilon": None, "pooler_activation": "pooler_hidden_act"},
    fields=(_DISTANCES,),
    dropout=("hidden_dropout_prob", "attention_probs_dropout_prob", "pooler_dropout"),
    defaults={"share_att_key": False, "position_buckets": -1, "norm_rel_ebd": "none"},
    required=_OF_DEBERTA,
    heads=_HEADS | _classifier("pooler.dense", "classifier") | _BERT_LM,
)
_ALBERT_LAYER = "encoder.albert_layer_groups.0.albert_layers.0"
_T5_DENSE = "encoder.block.{}.layer.1.DenseReluDense"
_T5 = Architecture(
    name="T5",
    base="transformer",
    layers={
        "token_embedding": "shared",
        "position_bias": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        **_in("encoder.block.{}.layer.0.SelfAttention", query="q", key="k", value="v", output="o"),
        "attention_layer_norm": "encoder.block.{}.layer.0.layer_norm",
        **_in(_T5_DENSE, intermediate="wi", feedforward_output="wo"),
        "feedforward_layer_norm": "encoder.block.{}.layer.1.layer_norm",
        "output_layer_norm": "encoder.final_layer_norm",
    },
    when_gated=_in(_T5_DENSE, intermediate="wi_0", gate="wi_1"),
    constants={
        **_RMS_NORM,
        "position_encoding": "t5",
        "segment_encoding": "none",
        "attention_scale": 1.0,
    },
    names={
        "num_layers": "num_layers",
        "num_heads": "num_heads",
        "hidden_dim": "d_model",
        "head_dim": "d_kv",
        "intermediate_dim": "d_ff",
        "max_sequence_length": "n_positions",
        "max_distance": "relative_attention_max_distance",
        "activation": None,
        "layer_norm_epsilon": "layer_norm_epsilon",
    },
    fields=(_FEED_FORWARD,),
    dropout=("dropout_rate",),
    defaults={"n_positions": 512},
    unused=("encoder.embed_tokens.", "decoder.", "lm_head."),
    tied=("encoder.embed_tokens.weight", "transformer.encoder.embed_tokens.weight"),
    encoder_class="EncoderModel",
    required={"relative_attention_num_buckets": 32},
    heads=_TOKEN_CLASSIFIER,
)

ARCHITECTURES: dict[str, Architecture] = {
    "bert": _BERT,
    "bert-generation": Architecture(
        name="BertGeneration",
        base="bert",
        layers={**_EMBEDDINGS, **_BERT_BLOCK},
        constants=_WITHOUT_SEGMENTS,
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
            **_BERT_LAYERS,
            "attention_layer_norm": "encoder.layer.{}.attention.LayerNorm",
            "feedforward_layer_norm": "encoder.layer.{}.intermediate.LayerNorm",
            "output_layer_norm": "LayerNorm",
        },
        constants={**_AT_INPUT, "normalize_first": True},
    ),
    "megatron-bert": dataclasses.replace(
        _BERT,
        name="MegatronBert",
        layers={
            **_BERT_LAYERS,
            "attention_layer_norm": "encoder.layer.{}.attention.ln",
            "feedforward_layer_norm": "encoder.layer.{}.ln",
            "output_layer_norm": "encoder.ln",
        },
        constants={**_AT_INPUT, **_PRE_NORM},
    ),
    "xlm-roberta-xl": dataclasses.replace(
        _ROBERTA,
        name="XLMRobertaXL",
        layers={
            **_BERT_LAYERS,
            "attention_layer_norm": "encoder.layer.{}.attention.self_attn_layer_norm",
            "feedforward_layer_norm": "encoder.layer.{}.LayerNorm",
            "output_layer_norm": "encoder.LayerNorm",
        },
        constants={**_AT_INPUT, **_PRE_NORM},
    ),
    "ernie": dataclasses.replace(
        _BERT, name="Ernie", base="ernie", required={**_ABSOLUTE, "use_task_id": False}
    ),
    "rembert": Architecture(
        name="RemBert",
        base="rembert",
        layers={**_BERT_LAYERS, "embeddings_projection": "encoder.embedding_hidden_mapping_in"},
        constants=_AT_INPUT,
        names={"embedding_dim": "input_embedding_size"},
        fields=(_NO_TOKENS,),
        required=_ENCODER,
        heads=_HEADS,
    ),
    "albert": Architecture(
        name="Albert",
        base="albert",
        layers={
            **_EMBEDDINGS,
            "embeddings_projection": "encoder.embedding_hidden_mapping_in",
            **_in(f"{_ALBERT_LAYER}.attention", query="query", key="key", value="value"),
            **_in(f"{_ALBERT_LAYER}.attention", output="dense", attention_layer_norm="LayerNorm"),
            **_in(_ALBERT_LAYER, intermediate="ffn", feedforward_output="ffn_output"),
            "feedforward_layer_norm": f"{_ALBERT_LAYER}.full_layer_layer_norm",
            "pooled_dense": "pooler",
        },
        constants={**_AT_INPUT, "share_layers": True},
        names={"embedding_dim": "embedding_size"},
        required={"num_hidden_groups": 1, "inner_group_num": 1},
        heads=_HEADS | _masked_lm("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
    ),
    "esm": Architecture(
        name="Esm",
        base="esm",
        layers={
            "token_embedding": "embeddings.word_embeddings",
            **_BERT_BLOCK,
            "attention_layer_norm": "encoder.layer.{}.attention.LayerNorm",
            "feedforward_layer_norm": "encoder.layer.{}.LayerNorm",
            "output_layer_norm": "encoder.emb_layer_norm_after",
            **_POOLER,
        },
        constants={
            **_PRE_NORM,
            "position_encoding": "rotary",
            "segment_encoding": "none",
            "activation": "gelu",
        },
        names={"activation": None},
        fields=(_DROPPED_MASKS, _ONE_WAVELENGTH),
        required={
            **_ENCODER,
            "position_embedding_type": "rotary",
            "emb_layer_norm_before": False,
        },
        unused=("contact_head.", "embeddings.position_embeddings."),
        heads=_TOKEN_CLASSIFIER | _ROBERTA_CLASSIFIER | _ROBERTA_LM,
        masked_lm_activation="gelu",
    ),
    "deberta": dataclasses.replace(
        _DEBERTA,
        name="Deberta",
        layers={
            **_DEBERTA.layers,
            **_in(_DEBERTA_ATTENTION, position_key="pos_proj", position_query="pos_q_proj"),
            ("query", "key", "value"): f"{_DEBERTA_ATTENTION}.in_proj",
        },
        constants={**_DEBERTA.constants, "position_encoding": "deberta_v1"},
        required={**_OF_DEBERTA, "talking_head": False},
        zeros=(f"{_DEBERTA_ATTENTION}.k_bias", f"{_DEBERTA_ATTENTION}.pos_proj.bias"),
        interleaves_heads=True,
    ),
    "deberta-v2": dataclasses.replace(
        _DEBERTA,
        layers={
            **_DEBERTA.layers,
            "position_table_layer_norm": "encoder.LayerNorm",
            **_in(_DEBERTA_ATTENTION, query="query_proj", key="key_proj", value="value_proj"),
        },
        required={
            **_OF_DEBERTA,
            "share_att_key": True,
            "position_buckets": 256,
            "norm_rel_ebd": "layer_norm",
            "conv_kernel_size": 0,
            "attention_head_size": lambda config: (
                config["hidden_size"] // config["num_attention_heads"]
            ),
        },
    ),
    "distilbert": Architecture(
        name="DistilBert",
        base="distilbert",
        layers={
            **_EMBEDDINGS,
            **_in("transformer.layer.{}.attention", query="q_lin", key="k_lin", value="v_lin"),
            "output": "transformer.layer.{}.attention.out_lin",
            "attention_layer_norm": "transformer.layer.{}.sa_layer_norm",
            **_in("transformer.layer.{}.ffn", intermediate="lin1", feedforward_output="lin2"),
            "feedforward_layer_norm": "transformer.layer.{}.output_layer_norm",
        },
        constants={**_WITHOUT_SEGMENTS, "pooler_activation": "relu", "layer_norm_epsilon": 1e-12},
        names={
            "num_layers": "n_layers",
            "num_heads": "n_heads",
            "hidden_dim": "dim",
            "intermediate_dim": "hidden_dim",
            "activation": "activation",
            "layer_norm_epsilon": None,
        },
        dropout=("dropout", "attention_dropout"),
        heads={
            **_HEADS,
            **_classifier("pre_classifier", "classifier"),
            **_masked_lm("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
        },
    ),
    "electra": Architecture(
        name="Electra",
        base="electra",
        layers={**_EMBEDDINGS, **_BERT_BLOCK, "embeddings_projection": "embeddings_project"},
        constants={**_AT_INPUT, "pooler_activation": "gelu"},
        names={"embedding_dim": "embedding_size"},
        fields=(_NO_PROJECTION_OF_EQUAL_SIZE,),
        required=_ABSOLUTE,
        heads={
            **_ROBERTA.heads,
            "ForMaskedLM": {
                **_in("generator_predictions", dense="dense", layer_norm="LayerNorm"),
                "bias": "generator_lm_head.bias",
            },
        },
        masked_lm_activation="gelu",
    ),
    "mpnet": Architecture(
        name="MPNet",
        base="mpnet",
        layers={
            **_BERT_LAYERS,
            "position_bias": "encoder.relative_attention_bias",
            **_in("encoder.layer.{}.attention.attn", query="q", key="k", value="v", output="o"),
            "attention_layer_norm": "encoder.layer.{}.attention.LayerNorm",
        },
        constants={"position_encoding": "t5_input", "segment_encoding": "none"},
        fields=(_COUNTED_POSITIONS,),
        required={"relative_attention_num_buckets": 32, "pad_token_id": 1},
        heads=_ROBERTA.heads,
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
        constants={
            **_GATED_ROTARY,
            "segment_encoding": "none",
            "normalization": "layer_norm_without_beta",
            "normalize_first": True,
            "normalize_inputs": False,
        },
        names={"activation": "hidden_activation", "layer_norm_epsilon": "norm_eps"},
        fields=(Field(_read_layer_types, _write_layer_types), _NO_TOKENS),
        dropout=("mlp_dropout", "attention_dropout", "embedding_dropout"),
        required={"attention_bias": False, "mlp_bias": False, "norm_bias": False},
        zeros=("head.dense.bias", "head.norm.bias"),
        heads=_masked_lm("head.dense", "head.norm", "decoder.bias"),
        masked_lm_activation="gelu",
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
            **_in(
                "encoder.layers.{}.mlp", gate="fc11", intermediate="fc12", feedforward_output="fc2"
            ),
            "feedforward_layer_norm": "encoder.layers.{}.norm2",
            **_POOLER,
        },
        constants={**_GATED_ROTARY, "segment_encoding": "input"},
        fields=(_ROTARY_POSITIONS,),
        heads=_CLASSIFIERS
        | _masked_lm(
            "cls.predictions.transform.dense",
            "cls.predictions.transform.layer_norm",
            "cls.predictions.bias",
        ),
    ),
    "jina_bert": dataclasses.replace(
        _BERT,
        name="JinaBert",
        layers={
            **_EMBEDDINGS,
            **_BERT_ATTENTION,
            ("intermediate", "gate"): "encoder.layer.{}.mlp.gated_layers",
            **_in(
                "encoder.layer.{}.mlp", feedforward_output="wo", feedforward_layer_norm="layernorm"
            ),
            **_POOLER,
        },
        constants={"position_encoding": "alibi", "segment_encoding": "input", "gated": True},
        names={"activation": None},
        fields=(_JINA,),
        defaults={"feed_forward_type": "original"},
        required={
            **_ENCODER,
            "model_type": "bert",
            "position_embedding_type": "alibi",
            "hidden_act": "gelu",
        },
        zeros=("encoder.layer.{}.mlp.gated_layers.bias",),
        masked_lm_activation="gelu",
    ),
    "jina_embeddings_v3": Architecture(
        name="JinaEmbeddingsV3",
        base="roberta",
        layers={
            **_EMBEDDINGS,
            "embeddings_layer_norm": "emb_ln",
            ("query", "key", "value"): "encoder.layers.{}.mixer.Wqkv",
            "output": "encoder.layers.{}.mixer.out_proj",
            "attention_layer_norm": "encoder.layers.{}.norm1",
            **_in("encoder.layers.{}.mlp", intermediate="fc1", feedforward_output="fc2"),
            "feedforward_layer_norm": "encoder.layers.{}.norm2",
            **_POOLER,
        },
        constants={"position_encoding": "rotary", "segment_encoding": "input"},
        fields=(_ROTARY_POSITIONS,),
        heads=_ROBERTA.heads,
        masked_lm_activation="gelu",
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
        constants={**_GATED_ROTARY, "use_bias": True, "segment_encoding": "input"},
        fields=(_ROTARY_POSITIONS, _NO_SEGMENTS_IF_0),
        zeros=("encoder.layer.{}.mlp.up_gate_proj.bias",),
        heads=_CLASSIFIERS | _masked_lm("lm_head.dense", "lm_head.norm", "lm_head.decoder.bias"),
        masked_lm_activation="gelu",
    ),
    "eurobert": Architecture(
        name="EuroBert",
        base="model",
        layers={
            "token_embedding": "embed_tokens",
            **_in("layers.{}.self_attn", query="q_proj", key="k_proj", value="v_proj"),
            "output": "layers.{}.self_attn.o_proj",
            "attention_layer_norm": "layers.{}.input_layernorm",
            **_in("layers.{}.mlp", intermediate="gate_proj", gate="up_proj"),
            "feedforward_output": "layers.{}.mlp.down_proj",
            "feedforward_layer_norm": "layers.{}.post_attention_layernorm",
            "output_layer_norm": "norm",
        },
        constants={**_GATED_ROTARY, **_RMS_NORM, "segment_encoding": "none"},
        names={"layer_norm_epsilon": "rms_norm_eps"},
        fields=(_ROTARY_POSITIONS, _NO_TOKENS),
        dropout=("attention_dropout",),
        required={
            "attention_bias": False,
            "mlp_bias": False,
            "num_key_value_heads": lambda config: config["num_attention_heads"],
        },
        heads=_TOKEN_CLASSIFIER,
    ),
    "t5": _T5,
    "mt5": dataclasses.replace(_T5, name="MT5"),
    "roformer": Architecture(
        name="RoFormer",
        base="roformer",
        layers={**_EMBEDDINGS, **_BERT_BLOCK, "embeddings_projection": "embeddings_project"},
        constants={"position_encoding": "rotary", "segment_encoding": "input"},
        names={"embedding_dim": "embedding_size"},
        fields=(_NO_PROJECTION_OF_EQUAL_SIZE, _POOLER_AS_ENCODER),
        required={**_ENCODER, "rotary_value": False},
        unused=("encoder.embed_positions.",),
        heads=_HEADS | _ROBERTA_CLASSIFIER | _BERT_LM,
        pairs_neighbors=True,
    ),
}


def type_of(config: Config) -> str:
    """Return the name of the entry of the table for a configuration.

    Raises:
        ValueError: If the table has no entry for its `model_type`.
    """
    model_type = str(config.get("model_type"))
    validation.choice("model_type", model_type, tuple(ARCHITECTURES))
    # JinaBERT calls itself a BERT.
    is_jina = model_type == "bert" and config.get("position_embedding_type") == "alibi"
    return "jina_bert" if is_jina else model_type
