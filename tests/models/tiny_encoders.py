"""Tiny random models of `transformers`, one of each type that a `DietBertBackbone` can read."""

import inspect

import numpy as np
import torch
import transformers

from tests.models import jina_bert

LENGTH = 13
VOCABULARY_SIZE = 41
SIZES = {
    "vocab_size": VOCABULARY_SIZE,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 28,
    "max_position_embeddings": LENGTH + 4,
    "type_vocab_size": 3,
    "pad_token_id": 3,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "layer_norm_eps": 1e-3,
    "hidden_act": "relu",
    "initializer_range": 0.3,
}
DISTILBERT = {"dim": 24, "n_layers": 3, "n_heads": 3, "hidden_dim": 28}
ROBERTA = {"hidden_act": "gelu_new"}
ESM = {"token_dropout": True, "mask_token_id": 5, "emb_layer_norm_before": False}
DEBERTA = {
    **{"relative_attention": True, "share_att_key": True, "pos_att_type": ["p2c", "c2p"]},
    **{"position_buckets": 256, "max_relative_positions": 300, "norm_rel_ebd": "layer_norm"},
    **{"position_biased_input": False, "type_vocab_size": 0, "layer_norm_eps": 1e-7},
    "pooler_hidden_act": "silu",
}
CLS = {"cls_token_id": 1, "sep_token_id": 2}
ROPE = {"rope_type": "default", "rope_theta": 300.0}
MODERN = {
    "local_attention": 7,
    "norm_eps": 1e-3,
    "hidden_activation": "relu",
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {"full_attention": ROPE, "sliding_attention": {**ROPE, "rope_theta": 70.0}},
}
T5_SIZES = {"d_model": 24, "num_layers": 3, "num_heads": 3, "d_ff": 28}
T5 = {**T5_SIZES, "d_kv": 8, "layer_norm_epsilon": 1e-3, "relative_attention_max_distance": 20}
# The class of each type in `transformers`, and arguments of its configuration.
ENCODERS = {
    "bert": ("Bert", {}),
    "bert-generation": ("BertGeneration", {}),
    "roberta": ("Roberta", ROBERTA),
    "xlm-roberta": ("XLMRoberta", {}),
    "camembert": ("Camembert", {}),
    "data2vec-text": ("Data2VecText", {}),
    "roberta-prelayernorm": ("RobertaPreLayerNorm", {}),
    "megatron-bert": ("MegatronBert", {}),
    "xlm-roberta-xl": ("XLMRobertaXL", {}),
    "ernie": ("Ernie", {}),
    "rembert": ("RemBert", {"input_embedding_size": 20, "output_embedding_size": 9}),
    "albert": ("Albert", {"embedding_size": 20}),
    "esm": ("Esm", {"position_embedding_type": "rotary", "rope_theta": 300.0, **ESM}),
    "deberta": ("Deberta", {**DEBERTA, "max_relative_positions": 9}),
    "deberta-v2": ("DebertaV2", DEBERTA),
    "distilbert": ("DistilBert", {**DISTILBERT, "activation": "relu"}),
    "electra": ("Electra", {"embedding_size": 20}),
    "mpnet": ("MPNet", {"pad_token_id": 1, "bos_token_id": 0}),
    "roformer": ("RoFormer", {"embedding_size": 20}),
    "modernbert": ("ModernBert", {**MODERN, **CLS}),
    "nomic_bert": ("NomicBert", {}),
    "jina_bert": ("JinaBert", {"hidden_act": "gelu"}),
    "jina_bert-reglu": ("JinaBert", {"hidden_act": "gelu", "feed_forward_type": "reglu"}),
    "jina_embeddings_v3": ("JinaEmbeddingsV3", {"rope_parameters": ROPE}),
    "gte": ("Gte", {"rope_parameters": ROPE}),
    "eurobert": ("EuroBert", {"rms_norm_eps": 1e-3, "mask_token_id": 4, "rope_parameters": ROPE}),
    "t5": ("T5", {**T5, "feed_forward_proj": "gated-gelu"}),
    "t5-relu": ("T5", {**T5, "d_kv": 6}),
    "mt5": ("MT5", {**T5, "d_kv": 10}),
}


def make(model_type, head="Model", only=None, **changes):
    """Return a tiny random model of a type, without dropout.

    Its configuration has `changes`, or nothing but `only`.
    """
    name, options = ENCODERS[model_type]
    if head == "Model":
        head = {"BertGeneration": "Encoder", "T5": "EncoderModel", "MT5": "EncoderModel"}.get(
            name, head
        )
    module = jina_bert if name == "JinaBert" else transformers
    config = getattr(module, f"{name}Config")(**(only or {**SIZES, **options, **changes}))
    torch.manual_seed(5)
    model = getattr(module, name + head)(config).eval()
    for key, parameter in model.named_parameters():
        # Of layer normalizations, too.
        if parameter.requires_grad and parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=float("weight" in key), std=0.3)
    return model


def random_inputs(rng, num_segments, padding):
    """Return three texts: one with padding after it, and one with padding before it."""
    token_ids = rng.integers(4, VOCABULARY_SIZE, size=(3, LENGTH))
    padding_mask = np.ones((3, LENGTH), "int32")
    padding_mask[1, 8:] = 0
    padding_mask[2, :4] = 0
    return {
        "token_ids": np.where(padding_mask, token_ids, padding),
        "segment_ids": rng.integers(num_segments, size=(3, LENGTH)),
        "padding_mask": padding_mask,
    }


def outputs(model, inputs):
    """Return what a model of `transformers` computes. Some types take no segments."""
    names = {"token_ids": "input_ids", "padding_mask": "attention_mask"}
    if "token_type_ids" in inspect.signature(model.forward).parameters:
        names["segment_ids"] = "token_type_ids"
    return model(**{names[key]: torch.tensor(inputs[key]).long() for key in names})
