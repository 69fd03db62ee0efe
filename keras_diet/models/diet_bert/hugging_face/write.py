"""From a backbone or a task to a folder that `transformers` loads."""

import dataclasses
import importlib.util
import itertools
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import tokenizers
from safetensors.numpy import save_file
from tokenizers import processors

from keras_diet import validation
from keras_diet.layers.configuration import constructor_arguments, has_lora
from keras_diet.models.diet_bert.hugging_face.architectures import ARCHITECTURES
from keras_diet.models.diet_bert.hugging_face.checkpoint import (
    INDEX,
    WEIGHTS,
    Checkpoint,
    names_of_shards,
    optional_json,
)
from keras_diet.models.diet_bert.hugging_face.heads import (
    MASKED_LM,
    OUR_POOLINGS,
    SENTENCE_FILES,
    SENTENCE_TRANSFORMER,
    TEXT_RERANKER,
)
from keras_diet.models.diet_bert.hugging_face.tokenizer_files import FILE, PIECES
from keras_diet.models.diet_bert.hugging_face.weights import tensors_by_name
from keras_diet.models.hub.classifier_task import ClassifierTask
from keras_diet.models.hub.onnx_file import write_onnx
from keras_diet.models.hub.presets import whole_preset
from keras_diet.models.hub.repairs import quantized_layers
from keras_diet.models.hub.token_rows import template_of
from keras_diet.models.hub.tokenizer import FastTokenizer
from keras_diet.types import Config

# The names under which clients look for programs.
PROGRAM, QUANTIZED_PROGRAM = "onnx/model.onnx", "onnx/model_quantized.onnx"
# Arguments of a backbone that do not change what it computes with given weights.
_WITHOUT_EFFECT = {"name", "trainable", "dtype", "attention_implementation", "recompute", "dropout"}
_WITHOUT_EFFECT |= {"activation_dropout", "attention_dropout", "bias_initializer"}


def write_hugging_face(
    model: keras.Model,
    folder: str | os.PathLike[str],
    model_type: str | None = None,
    onnx: bool | str = False,
) -> None:
    """Write the model to a folder that other programs load, with the same outputs.

    The folder gets `config.json` and `model.safetensors`, in float32, for `transformers`. A task is
    written with its head, e.g. as a `BertForSequenceClassification`, with the names of its classes,
    and with its tokenizer in `tokenizer.json`. A text embedder becomes a folder of
    sentence-transformers, and a reranker one of its `CrossEncoder`. With `onnx`, the program is in
    the folder too, for ONNX Runtime and browsers, with any batch size and length.

    All files appear or none. A model that was in the folder is replaced. Its tokenizer stays if the
    new model has none, and a vocabulary of the same size.

    Texts that are too long are cut as in `transformers`. If both texts of a pair are cut and one of
    them keeps a token more, it is the longer one, or the second one if they are equal. With a
    `HuggingFaceTokenizer`, preprocessors do the same. With other tokenizers it is the first one.

    The inputs of the program are `input_ids`, `attention_mask` and, if the model reads segments,
    `token_type_ids`, in int64. The outputs have the names and shapes of `transformers`:

    | model | outputs |
    |---|---|
    | backbone | `last_hidden_state` |
    | embedder | `last_hidden_state`, and `sentence_embedding` of shape `(B, hidden_dim)` |
    | question answerer | `start_logits`, `end_logits` |
    | masked language model | `logits` of all tokens |
    | classifier | `logits` |
    | reranker | `logits`, before the activation, which `config.json` names |

    Args:
        folder: The folder. It is made if it does not exist.
        model_type: One of the types of `from_hugging_face`, such as `"roberta"`. Defaults to
            `None`, which means the type that `from_hugging_face` has read. Another model, also one
            from a preset, needs it. With `onnx`, a model without a type gets no
            `model.safetensors`: its weights are in the program.
        onnx: `False`, `True`, which writes `onnx/model.onnx`, or `"int8"`, which also writes
            `onnx/model_quantized.onnx`. Defaults to `False`.

    Raises:
        ValueError: If the type is not given, or does not compute what the model computes; if a
            classifier has an activation, because the models of `transformers` return logits; if
            the model has LoRA or quantized weights; if its preprocessor has
            `truncate="waterfall"`; or, with `onnx`, if the tokenizer cannot be written.
        ImportError: If a package that writes ONNX files is missing.

    Example:

    ```python
    backbone = keras_diet.models.DietBertBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        position_encoding="input", segment_encoding="input",
    )
    backbone.export_to_hugging_face("a/folder", "bert")
    model = transformers.AutoModel.from_pretrained("a/folder")
    ```
    """
    validation.choice("onnx", onnx, (False, True, "int8"))
    backbone = getattr(model, "backbone", model)
    if has_lora(backbone) or quantized_layers(backbone):
        raise ValueError(
            "Only weights without LoRA and quantization can be written. Received: LoRA or "
            "quantized layers. A preset keeps them, and a preset that is loaded again has LoRA's "
            "updates in its kernels."
        )
    preprocessor: Any = getattr(model, "preprocessor", None)
    tokenizer: Any = getattr(preprocessor, "tokenizer", None)
    is_fast = isinstance(tokenizer, FastTokenizer)
    if is_fast and getattr(preprocessor, "truncate", None) == "waterfall":
        raise ValueError(
            "`truncate` of the preprocessor must be 'round_robin', because `transformers` cuts the "
            "longest text of a pair first. Received: truncate='waterfall'"
        )
    if onnx and tokenizer is not None and not is_fast:
        raise ValueError(
            "The folder of an ONNX file needs a tokenizer of the `tokenizers` package. Received: "
            f"{type(tokenizer).__name__}. Leave out the tokenizer: `task.export(path, "
            'format="onnx")`.'
        )
    model_type = model_type or backbone.hugging_face_type
    if onnx and model_type is None:
        config, tensors = _config_of_program(model, backbone), {}
    else:
        config, tensors = _config_and_weights(model, backbone, tokenizer, model_type)
    if tokenizer is not None:
        config["pad_token_id"] = tokenizer.pad_token_id
    with whole_preset(folder) as new:
        if onnx:
            has_segments = _reads_segments(model, backbone, tokenizer)
            _write_programs(model, Path(new), has_segments, is_quantized=onnx == "int8")
        if tensors:
            save_file(tensors, Path(new) / WEIGHTS, metadata={"format": "pt"})
        _write_json(Path(new) / "config.json", config)
        if is_fast:
            _write_tokenizer(tokenizer, Path(new), model)
        if hasattr(model, "pooling_mode"):
            _write_sentence_transformer(model, Path(new))
        old_config = optional_json(folder, "config.json")
        has_other = old_config.get("vocab_size", config["vocab_size"]) != config["vocab_size"]
        _remove_other_model(Path(folder), and_tokenizer=is_fast or has_other)


def _config_of_program(model, backbone):
    """Return the configuration of a folder without weights.

    Clients find out by the type which inputs and heads a program has. They know BERT's. The other
    values are sizes, because a BERT does not compute what the program computes.
    """
    head = model.trained_head
    if head is not TEXT_RERANKER:
        _check_activation(model, "an ONNX file")
    return {
        "model_type": "bert",
        "architectures": [f"Bert{head.kinds[0] if head.kinds else 'Model'}"],
        "vocab_size": backbone.vocabulary_size,
        "hidden_size": backbone.hidden_dim,
        "num_hidden_layers": backbone.num_layers,
        "num_attention_heads": backbone.num_heads,
        "intermediate_size": backbone.intermediate_dim,
        "max_position_embeddings": backbone.max_sequence_length,
        "type_vocab_size": backbone.num_segments,
        **head.settings(model),
    }


def _reads_segments(model, backbone, tokenizer):
    """Return whether segments change the outputs. Question answerers mask the question."""
    numbers_segments = tokenizer is None or template_of(tokenizer).numbers_segments
    in_backbone = backbone.segment_encoding != "none" and backbone.num_segments > 1
    in_head = model.trained_head.kinds == ("ForQuestionAnswering",)
    return numbers_segments and (in_backbone or in_head)


def _config_and_weights(model, backbone, tokenizer, model_type):
    """Return the configuration and the tensors of a type of `transformers`."""
    if model_type is None:
        fits = [each for each in ARCHITECTURES if not _describe(backbone, each)[1]]
        raise ValueError(
            "`model_type` must name a type of `transformers`, unless `from_hugging_face` has read "
            "the model. Received: model_type=None. The types that compute what the model computes "
            f"are: {', '.join(fits) or 'none'}. With `onnx=True`, none is needed."
        )
    validation.choice("model_type", model_type, tuple(ARCHITECTURES))
    config, differences = _describe(backbone, model_type)
    if differences:
        raise ValueError(
            f"A {model_type!r} of `transformers` does not compute what the model computes. "
            f"Received: {differences}. A preset keeps the model."
        )
    architecture = ARCHITECTURES[model_type]
    tensors = tensors_by_name(backbone, architecture)
    _check_zeros(backbone, architecture, tensors)
    config["architectures"] = [architecture.name + architecture.encoder_class]
    head = model.trained_head
    if head.kinds:
        theirs = f"the models of type {model_type!r}"
        head.check(architecture, theirs, "Write the backbone alone, or keep the task in a preset.")
        of_head = head.tensors(model, architecture)
        # Of the heads, only some classifiers of texts use the pooler of the encoder.
        pooler = architecture.layers.get("pooled_dense", " ")
        has_own = "pooled_dense" in architecture.heads[head.kinds[0]]
        if model.backbone_output != "pooled_output" or has_own:
            tensors = {name: tensors[name] for name in tensors if not name.startswith(pooler)}
        tensors = {f"{architecture.base}.{name}": tensors[name] for name in tensors} | of_head
        config["architectures"] = [architecture.name + head.kinds[0]]
        config |= head.settings(model)
        described = head.arguments(Checkpoint(config, {}, "the configuration"), architecture, True)
        for name, value in described.items():
            if getattr(model, name) != value:
                raise ValueError(
                    f"`{name}` must be {value!r} in the head of a {config['architectures'][0]!r}. "
                    f"Received: {name}={getattr(model, name)!r}"
                )
        if "activation" not in described:
            _check_activation(model, f"the head of a {config['architectures'][0]!r}")
    if tokenizer is not None:
        first, padding = backbone.first_position, tokenizer.pad_token_id
        if first is not None and padding != first - 1:
            raise ValueError(
                "`transformers` counts positions from the id of the padding on, so this must be "
                f"{first - 1}. Received: pad_token_id={padding}, first_position={first}"
            )
    return config, {name: tensor.values() for name, tensor in tensors.items()}


def _check_activation(model, where):
    """Raise a `ValueError` if a classifier returns something else than logits."""
    if isinstance(model, ClassifierTask) and model.output_kind != "logits":
        activation = keras.activations.serialize(model.activation)
        raise ValueError(
            f"`activation` must be `None` in {where}, because it returns logits. Received: "
            f"activation={activation!r}. Make a task without it, and give it the weights: "
            "`new.set_weights(task.get_weights())`. Or keep the task in a preset."
        )


def outputs_by_name(model: keras.Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a model for inputs, both with the names of `transformers`."""
    token_ids = keras.ops.cast(inputs["input_ids"], "int32")
    segments = inputs.get("token_type_ids")
    zeros = keras.ops.zeros_like(token_ids)
    of_model = {
        "token_ids": token_ids,
        "segment_ids": zeros if segments is None else keras.ops.cast(segments, "int32"),
        "padding_mask": keras.ops.cast(inputs["attention_mask"], "int32"),
    }
    outputs = model.trained_head.outputs(model, of_model)
    # Half precision is for computing. Clients expect float32.
    return {name: keras.ops.cast(tensor, "float32") for name, tensor in outputs.items()}


def _write_programs(model, folder, has_segments, is_quantized):
    """Write `onnx/model.onnx`, and `onnx/model_quantized.onnx` with kernels in int8."""
    if is_quantized and importlib.util.find_spec("onnxruntime") is None:
        raise ImportError('`onnx="int8"` needs onnxruntime. Run `pip install onnxruntime`.')
    names = ("input_ids", "attention_mask", *["token_type_ids"] * has_segments)
    inputs = dict.fromkeys(names, (("batch", "length"), "int64"))
    (folder / PROGRAM).parent.mkdir()
    write_onnx(model, os.fspath(folder / PROGRAM), inputs, program=outputs_by_name)
    if is_quantized:
        from onnxruntime.quantization import quant_pre_process, quantize_dynamic

        with tempfile.TemporaryDirectory() as temporary:
            # Kernels must be constants, and not other views of them.
            optimized = Path(temporary, "model.onnx")
            quant_pre_process(folder / PROGRAM, optimized, skip_symbolic_shape=True)
            quantize_dynamic(optimized, folder / QUANTIZED_PROGRAM)


def _write_sentence_transformer(embedder: keras.Model, folder: Path) -> None:
    """Write the files with which sentence-transformers loads a text embedder."""
    modules = ["Transformer", "Pooling", *["Normalize"] * embedder.normalize]
    paths = ["", *(f"{i}_{name}" for i, name in enumerate(modules[1:], 1))]
    for path in paths[1:]:
        (folder / path).mkdir(exist_ok=True)
    files: Config = {
        "modules.json": [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
            for i, (path, name) in enumerate(zip(paths, modules, strict=True))
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": embedder.backbone.hidden_dim,
            **{
                f"pooling_mode_{theirs}": embedder.pooling_mode == ours
                for theirs, ours in OUR_POOLINGS.items()
            },
        },
    }
    if embedder.preprocessor is not None:
        length = embedder.preprocessor.sequence_length
        files["sentence_bert_config.json"] = {"max_seq_length": length, "do_lower_case": False}
    for name, contents in files.items():
        _write_json(folder / name, contents)


def _remove_other_model(folder: Path, and_tokenizer: bool) -> None:
    """Remove the files of the model in a folder that would be read beside the new files.

    A file in another folder, which an index may name, stays.
    """
    names = {WEIGHTS, INDEX, SENTENCE_TRANSFORMER, "modules.json", "1_Pooling/config.json"}
    names |= {f"onnx/{path.name}" for path in folder.glob("onnx/*.onnx*")}
    names |= {name for name in names_of_shards(folder) if Path(name).name == name}
    if and_tokenizer:
        names |= {FILE, PIECES, "tokenizer_config.json", "vocab.txt", *SENTENCE_FILES}
        names |= {"special_tokens_map.json", "added_tokens.json"}
    for name in names:
        (folder / name).unlink(missing_ok=True)


def _write_tokenizer(tokenizer: FastTokenizer, folder: Path, task: keras.Model) -> None:
    """Write the tokenizer of a task, which `transformers.AutoTokenizer` loads."""
    # A copy, because padding is a setting of its use.
    fast = tokenizers.Tokenizer.from_str(tokenizer.fast_tokenizer().to_str())
    roles = ("cls", "sep", "pad", "mask")
    names = {role: getattr(tokenizer, f"{role}_token") for role in roles}
    names["unk"] = getattr(tokenizer, "unk_token", tokenizer.oov_token)
    # Added tokens keep their flags, such as the space that a mask takes.
    added = {token.content for token in fast.get_added_tokens_decoder().values()}
    fast.add_special_tokens([token for token in names.values() if token and token not in added])
    template = template_of(tokenizer)
    if fast.post_processor is None and template.start:
        cls, sep = names["cls"], names["sep"]
        fast.post_processor = processors.TemplateProcessing(
            single=f"{cls} $A {sep}",
            pair=f"{cls} $A {sep} $B:1 {sep}:1",
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in (cls, sep)],
        )
    # `transformers` sets both in each call. `tokenizers` takes them from the file.
    length = task.preprocessor.sequence_length
    fast.enable_truncation(length)
    fast.enable_padding(pad_id=tokenizer.pad_token_id, pad_token=tokenizer.pad_token)
    fast.save(os.fspath(folder / "tokenizer.json"))
    config: Config = {f"{role}_token": name for role, name in names.items() if name}
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    segments = ["token_type_ids"] * template.numbers_segments
    config["model_input_names"] = ["input_ids", *segments, "attention_mask"]
    config["model_max_length"] = length
    # In texts of `transformers`, masks are special tokens.
    is_split = tokenizer.split_special_tokens and task.trained_head is not MASKED_LM
    config["split_special_tokens"] = is_split
    _write_json(folder / "tokenizer_config.json", config)


def _write_json(path: Path, contents: Any) -> None:
    path.write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")


def _check_zeros(backbone, architecture, tensors):
    """Raise a `ValueError` if weights would be lost that Hugging Face does not have."""
    everything = tensors_by_name(backbone, dataclasses.replace(architecture, zeros=()))
    for name in everything.keys() - tensors.keys():
        if everything[name].values().any():
            raise ValueError(
                f"A {architecture.name} of `transformers` has no `{name}`, which must be zero. "
                "Received: other values, from training. Freeze these biases before you train."
            )


def _describe(backbone: keras.Model, model_type: str) -> tuple[Config, Config]:
    """Return the configuration of a type, and the arguments of a backbone that it does not have."""
    arguments = constructor_arguments(type(backbone))
    defaults = {name: each.default for name, each in arguments.items()}
    ours = _comparable({**defaults, **backbone.get_config()})
    architecture = ARCHITECTURES[model_type]
    config = {"model_type": model_type, **architecture.configuration(ours)}
    described = architecture.backbone_arguments(config, "the configuration")
    theirs = _comparable({**defaults, **described})
    compared = sorted(defaults.keys() - _WITHOUT_EFFECT)
    return config, {name: ours[name] for name in compared if ours[name] != theirs[name]}


def _comparable(arguments: Config) -> Config:
    """Return the arguments of a backbone in one form."""
    lists = {}
    of_layers = {"attention_windows": None, "max_wavelength": 10_000.0, "rope_scaling": None}
    for name, default in of_layers.items():
        value = arguments[name]
        pattern = itertools.cycle(value if isinstance(value, (list, tuple)) else [value])
        values = itertools.islice(pattern, arguments["num_layers"])
        lists[name] = [default if each is None else each for each in values]
    head_dim = arguments["head_dim"] or arguments["hidden_dim"] // arguments["num_heads"]
    has_table = arguments["position_encoding"] in ("deberta", "deberta_v1")
    # Without segments at the input, nothing has their number.
    has_segments = arguments["segment_encoding"] == "input"
    return {
        **arguments,
        **lists,
        "max_distance": arguments["max_distance"] or (512 if has_table else 128),
        # The types with a bias share it between layers.
        "sharing": arguments["sharing"] or "layer-wise",
        "head_dim": head_dim,
        "attention_scale": arguments["attention_scale"] or head_dim**-0.5,
        "num_segments": arguments["num_segments"] if has_segments else 0,
    }
