"""BERT with each encoding, from KerasHub and from Hugging Face: models and their steps."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import keras_hub
import numpy as np

from keras_diet.layers import cache_positions
from keras_diet.models import DietBertBackbone

SIZES = {
    "base": {"num_layers": 12, "hidden_dim": 768, "num_heads": 12, "intermediate_dim": 3072},
    "small": {"num_layers": 4, "hidden_dim": 512, "num_heads": 8, "intermediate_dim": 2048},
    "tiny": {"num_layers": 1, "hidden_dim": 16, "num_heads": 2, "intermediate_dim": 32},
}
VOCABULARY_SIZE = 30_522
DROPOUT = 0.1
SEED = 0

AT_INPUT = {"segment_encoding": "input"}
DIET_ABS = {"position_encoding": "diet_abs", "rank": 128}
DIET_REL = {"position_encoding": "diet_rel"}
ENCODINGS = {
    "input": {"position_encoding": "input", **AT_INPUT},
    # The same model again shows how much the ratio of equal models varies.
    "input_again": {"position_encoding": "input", **AT_INPUT},
    "diet_abs": DIET_ABS,
    "diet_abs_cached": DIET_ABS,
    # The activation of Hugging Face's model.
    "diet_abs_exact_gelu": {**DIET_ABS, "activation": "gelu"},
    # The training loop and the optimizer of Hugging Face's model.
    "diet_abs_in_torch_loop": DIET_ABS,
    "diet_abs_segments_at_input": {**DIET_ABS, **AT_INPUT},
    "diet_rel": DIET_REL,
    "diet_rel_segments_at_input": {**DIET_REL, **AT_INPUT},
    "shaw": {"position_encoding": "shaw", **AT_INPUT},
    "t5": {"position_encoding": "t5", **AT_INPUT},
    "tupe_abs": {"position_encoding": "tupe_abs", **AT_INPUT},
    "tupe_rel": {"position_encoding": "tupe_rel", **AT_INPUT},
    "diet_abs_input": {"position_encoding": "diet_abs_input", "rank": 128, **AT_INPUT},
    "sinusoidal": {"position_encoding": "sinusoidal", **AT_INPUT},
    "none": {"position_encoding": "none", **AT_INPUT},
    **{
        name: {"position_encoding": name, **AT_INPUT}
        for name in (
            *("alibi", "kerple", "sandwich", "fire", "rotary", "transformer_xl"),
            *("deberta", "query_relative", "log_cpb", "forgetting"),
        )
    },
}
OTHERS = ("kerashub", "hugging_face")
# Rows that other rows are compared with are timed first.
ROWS = ("input", *OTHERS, *(name for name in ENCODINGS if name != "input"))
STEPS = ("training", "inference")
DTYPES = ("float32", "mixed_bfloat16")
IN_TORCH_LOOP = ("diet_abs_in_torch_loop", "deberta_in_torch_loop")
ON_TORCH = ("hugging_face", "diet_abs_exact_gelu", *IN_TORCH_LOOP)


def has_row(row: str, step: str) -> bool:
    """Whether this backend has the row for a step."""
    if row in ON_TORCH and keras.config.backend() != "torch":
        return False
    steps = {"diet_abs_cached": "inference", **dict.fromkeys(IN_TORCH_LOOP, "training")}
    return steps.get(row, step) == step


def make_model(
    row: str,
    size: str,
    length: int,
    dtype: str = "float32",
    dropout: float = DROPOUT,
    **options: Any,
) -> Any:
    """Return the model of a row, with random weights. Only some models have other options."""
    sizes = {**SIZES[size], "vocabulary_size": VOCABULARY_SIZE}
    if row == "hugging_face":
        rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout)
        positions = {"max_position_embeddings": max(length, 512)}
        return make_hugging_face_model("BertConfig", **sizes, **rates, **positions)
    arguments = {**sizes, "dropout": dropout, "max_sequence_length": max(length, 512)}
    if row == "kerashub":
        return keras_hub.models.BertBackbone(**arguments, dtype=dtype)
    model = DietBertBackbone(**arguments, **ENCODINGS[row], dtype=dtype, **options)
    if row == "diet_abs_cached":
        return cache_positions(model)
    return model


def make_hugging_face_model(
    config: str,
    vocabulary_size: int,
    num_layers: int,
    hidden_dim: int,
    num_heads: int,
    intermediate_dim: int,
    **options: Any,
) -> Any:
    import torch
    import transformers

    sizes = {
        "vocab_size": vocabulary_size,
        "hidden_size": hidden_dim,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "intermediate_size": intermediate_dim,
    }
    model = transformers.AutoModel.from_config(getattr(transformers, config)(**sizes, **options))
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def count_weights(row: str, model: Any) -> int:
    if row == "hugging_face":
        return sum(parameter.numel() for parameter in model.parameters())
    return model.count_params()


def make_inputs(batch_size: int, length: int) -> dict[str, np.ndarray]:
    """Return random tokens in two segments. Every second sequence ends with padding."""
    rng = np.random.default_rng(SEED)
    valid = np.full((batch_size, 1), length)
    valid[1::2] = length * 3 // 4
    padding_mask = np.arange(length) < valid
    token_ids = rng.integers(1, VOCABULARY_SIZE, (batch_size, length))
    segment_ids = np.broadcast_to(np.arange(length) >= length // 2, (batch_size, length))
    return {
        "token_ids": np.where(padding_mask, token_ids, 0).astype("int32"),
        "segment_ids": segment_ids.astype("int32"),
        "padding_mask": padding_mask.astype("int32"),
    }


def make_targets(size: str, batch_size: int, length: int) -> dict[str, np.ndarray]:
    hidden_dim = SIZES[size]["hidden_dim"]
    return {
        "sequence_output": np.zeros((batch_size, length, hidden_dim), "float32"),
        "pooled_output": np.zeros((batch_size, hidden_dim), "float32"),
    }


def make_step(
    row: str,
    model: Any,
    step: str,
    inputs: dict[str, np.ndarray],
    targets: dict[str, np.ndarray],
    dtype: str = "float32",
    jit_compile: bool = True,
) -> Callable[[], Any]:
    """Return a function that runs one step, from NumPy arrays to NumPy arrays."""
    if row == "hugging_face":
        model.train(step == "training")
        forward, parameters = hugging_face_forward(model, dtype), list(model.parameters())
        return make_torch_step(forward, parameters, step, inputs, targets)
    if row in IN_TORCH_LOOP:
        # `parameters()` is empty in models that follow KerasHub.
        parameters = [variable.value for variable in model.trainable_variables]
        return make_torch_step(lambda x: model(x, training=True), parameters, step, inputs, targets)
    compiles = keras.config.backend() == "jax"
    compiles = compiles or (keras.config.backend() == "tensorflow" and jit_compile)
    model.compile(optimizer="adamw", loss="mse", jit_compile=compiles)
    if step == "training":
        return lambda: model.train_on_batch(inputs, targets)
    return lambda: model.predict_on_batch(inputs)


def make_step_of_row(
    size: str,
    shape: tuple[int, int],
    *,
    row: str,
    step: str,
    dtype: str = "float32",
    dropout: float = DROPOUT,
    jit_compile: bool = True,
    **options: Any,
) -> Callable[[], Any]:
    """Return a step of a new model of a row, with `shape[0]` sequences of `shape[1]` tokens."""
    model = make_model(row, size, shape[1], dtype, dropout, **options)
    inputs, targets = make_inputs(*shape), make_targets(size, *shape)
    return make_step(row, model, step, inputs, targets, dtype, jit_compile)


def hugging_face_forward(model: Any, dtype: str) -> Callable[[dict], dict]:
    """Return a function with the inputs and outputs of a `DietBertBackbone`."""
    import torch

    device = next(model.parameters()).device

    def forward(inputs):
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == "mixed_bfloat16"):
            outputs = model(
                input_ids=torch.as_tensor(inputs["token_ids"], device=device),
                token_type_ids=torch.as_tensor(inputs["segment_ids"], device=device),
                attention_mask=torch.as_tensor(inputs["padding_mask"], device=device),
            )
        names = {"sequence_output": "last_hidden_state", "pooled_output": "pooler_output"}
        return {name: outputs[key] for name, key in names.items() if key in outputs}

    return forward


def make_torch_step(
    forward: Callable[[dict], dict],
    parameters: Sequence[Any],
    step: str,
    inputs: dict[str, np.ndarray],
    targets: dict[str, np.ndarray],
) -> Callable[[], Any]:
    """Return a step of PyTorch, without Keras's trainer and optimizer."""
    import torch

    device = parameters[0].device
    optimizer = torch.optim.AdamW(parameters)

    def train():
        optimizer.zero_grad()
        loss = sum(
            torch.nn.functional.mse_loss(
                output.float(), torch.as_tensor(targets[name], device=device)
            )
            for name, output in forward(inputs).items()
        )
        loss.backward()
        optimizer.step()
        return loss.item()

    def predict():
        with torch.inference_mode():
            return {name: output.float().cpu().numpy() for name, output in forward(inputs).items()}

    return train if step == "training" else predict
