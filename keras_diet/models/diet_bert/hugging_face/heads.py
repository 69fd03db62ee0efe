"""What tasks read of a trained model beside its encoder: heads, names of classes, pooling."""

import dataclasses
import os
import re
from collections.abc import Callable

import keras

from keras_diet import _backend, validation
from keras_diet._compat import flatten_layers
from keras_diet.models.diet_bert.hugging_face.architecture import Architecture
from keras_diet.models.diet_bert.hugging_face.checkpoint import (
    Checkpoint,
    optional_json,
    read_json,
)
from keras_diet.models.diet_bert.hugging_face.weights import (
    Part,
    TheirTensor,
    check_tied,
    parts_of_layer,
)
from keras_diet.types import Config

# Our names of the poolings of sentence-transformers.
OUR_POOLINGS = {"mean_tokens": "mean", "cls_token": "cls", "max_tokens": "max"}

# What the head of a masked language model requires. ModernBERT's configuration has the last three.
_OF_MASKED_LM = {
    "tie_word_embeddings": True,
    # DeBERTa has the names of its head before `transformers`, too.
    "legacy": True,
    "decoder_bias": True,
    "classifier_bias": False,
    "classifier_activation": "gelu",
}


@dataclasses.dataclass(frozen=True)
class Head:
    """The head of a task in Hugging Face.

    Attributes:
        kinds: How the names of the classes in `transformers` end that have such a head. The first
            one is its name in `Architecture.heads`.
        arguments: `arguments(checkpoint, architecture, has_head)` returns the arguments of the
            task that the checkpoint determines.
        settings: The reverse: `settings(task)` returns the values of the configuration.
        outputs: `outputs(task, inputs)` returns the outputs by their names in `transformers`.
    """

    kinds: tuple[str, ...]
    arguments: Callable[[Checkpoint, Architecture, bool], Config] = lambda *_: {}
    settings: Callable[[keras.Model], Config] = lambda task: {}
    outputs: Callable[[keras.Model, Config], Config] = lambda task, inputs: {"logits": task(inputs)}

    def is_in(self, checkpoint: Checkpoint) -> bool:
        """Return whether a checkpoint has such a head."""
        return checkpoint.architecture.endswith(self.kinds)

    def tensors(self, task: keras.Model, architecture: Architecture) -> dict[str, TheirTensor]:
        """Return the weights of the head of a task by their names in Hugging Face."""
        tensors = {
            f"{theirs}{kind}": TheirTensor([part])
            for name, theirs in architecture.heads[self.kinds[0]].items()
            for kind, part in _parts(task, name).items()
        }
        return {name: tensors[name] for name in tensors if name not in architecture.zeros}

    def assign(self, task: keras.Model, checkpoint: Checkpoint, architecture: Architecture) -> None:
        """Give the weights of the head to a task."""
        tensors = self.tensors(task, architecture)
        if missing := sorted(tensors.keys() - checkpoint.tensors.keys()):
            raise ValueError(
                f"{checkpoint.source} lacks weights of the head of a `{checkpoint.architecture}`. "
                f"Received: no {', '.join(missing)}. Use the backbone alone."
            )
        for name, tensor in tensors.items():
            tensor.assign(checkpoint.tensors[name], name, checkpoint.source)

    def check(self, architecture: Architecture, source: str, remedy: str) -> None:
        """Raise a `ValueError` if the task has another head than the models of a type."""
        if self.kinds[0] not in architecture.heads:
            raise ValueError(f"The task has another head than {source}. {remedy}")


def _parts(task, name) -> dict[str, Part]:
    """Return the weights of a layer of a head, by the end of their names there."""
    if name == "bias":
        found = next(each for each in task.masked_lm_head.weights if each.name == "output_bias")
        return {"": Part(found, 1)}
    if name in ("dense", "layer_norm"):
        layers = {layer.name: layer for layer in flatten_layers(task.masked_lm_head)}
        layer = layers[f"intermediate_{name}"]
    else:
        layer = task.backbone.pooled_dense if name == "pooled_dense" else task.output_dense
    return {f".{kind}": part for kind, part in parts_of_layer(layer).items()}


# === Arguments of tasks ===


def _classes(checkpoint: Checkpoint, architecture: Architecture, has_head: bool) -> Config:
    # Another kind of classifier has other classes.
    is_other = "Classification" in checkpoint.architecture and not has_head
    names = None if is_other else _names_of_classes(checkpoint)
    number = len(checkpoint.config["id2label"]) if has_head else None
    return {"num_classes": number, "class_names": names}


def _classes_of_texts(checkpoint: Checkpoint, architecture: Architecture, has_head: bool) -> Config:
    is_multi_label = checkpoint.config.get("problem_type") == "multi_label_classification"
    return {**_classes(checkpoint, architecture, has_head), "multi_label": is_multi_label}


def _labels(task: keras.Model) -> Config:
    """Return the names of classes, and what kind of labels a text has."""
    names = task.class_names or [f"LABEL_{i}" for i in range(task.num_classes)]
    kind = "multi_label" if task.classes.is_multi_label else "single_label"
    return {
        "id2label": dict(enumerate(names)),
        "label2id": {name: i for i, name in enumerate(names)},
        "problem_type": "regression" if task.num_classes == 1 else f"{kind}_classification",
    }


# The activations of scores in sentence-transformers, by their names in its files.
_SCORES = {
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    "torch.nn.modules.linear.Identity": "linear",
}


def _of_reranker(checkpoint: Checkpoint, architecture: Architecture, has_head: bool) -> Config:
    """Return the activation that sentence-transformers gives to scores."""
    if not has_head:
        return {}
    outputs = len(checkpoint.config["id2label"])
    if outputs != 1:
        raise ValueError(
            f"A reranker has one output. Received: {outputs} classes in {checkpoint.source}. Use "
            "`DietBertTextClassifier`."
        )
    settings: Config = {}
    if checkpoint.folder is not None:
        settings = optional_json(checkpoint.folder, SENTENCE_TRANSFORMER)
        _check_modules(checkpoint.folder, ("Transformer",))
        _check_prompts(settings, {}, SENTENCE_TRANSFORMER)
    # Its versions before 5 wrote the name into the configuration, those before 4 under another key.
    older = checkpoint.config.get("sentence_transformers") or {}
    oldest = checkpoint.config.get("sbert_ce_default_activation_function")
    names = (settings.get("activation_fn"), older.get("activation_fn"), oldest)
    name = next(filter(None, names), "torch.nn.modules.activation.Sigmoid")
    kinds = {each.split(".")[-1]: ours for each, ours in _SCORES.items()}
    kind = validation.choice("activation_fn", name.split(".")[-1], tuple(kinds))
    return {"activation": keras.activations.get(kinds[kind])}


def _scores(task: keras.Model) -> Config:
    """Return the labels of a regression, and the activation of the scores."""
    name = keras.activations.serialize(task.activation)
    names = {ours: theirs for theirs, ours in _SCORES.items()}
    validation.choice("activation", name, tuple(names))
    return {**_labels(task), "sentence_transformers": {"activation_fn": names[name]}}


def _of_masked_lm(checkpoint: Checkpoint, architecture: Architecture, has_head: bool) -> Config:
    if not has_head:
        return {}
    architecture.check_values(_OF_MASKED_LM, checkpoint.config, checkpoint.source)
    output = architecture.heads[MASKED_LM.kinds[0]]["bias"].removesuffix(".bias")
    check_tied(checkpoint, architecture, f"{output}.weight", f"{output}.decoder.weight")
    arguments = architecture.backbone_arguments(checkpoint.config, checkpoint.source)
    return {
        "activation": architecture.masked_lm_activation or arguments["activation"],
        "layer_norm_epsilon": arguments["layer_norm_epsilon"],
    }


def _names_of_classes(checkpoint: Checkpoint) -> list[str] | None:
    """Return the names in `id2label`, or `None` if Hugging Face has made them up."""
    names = [str(name) for _, name in sorted(checkpoint.config["id2label"].items())]
    if len(names) < 2 or len(set(names)) < len(names) or not all(names):
        return None
    return None if all(re.fullmatch(r"LABEL_\d+", name) for name in names) else names


def _pooling(checkpoint: Checkpoint, architecture: Architecture, has_head: bool) -> Config:
    """Return the pooling and the normalization of a folder of sentence-transformers, if it is one.

    Raises:
        ValueError: If the folder has a pooling, a module or a prompt that `DietBertTextEmbedder`
            lacks.
    """
    folder = checkpoint.folder
    if folder is None or not (folder / "modules.json").is_file():
        return {}
    modules = _check_modules(folder, ("Transformer", "Pooling", "Normalize"))
    path = f"{modules['Pooling']}/config.json"
    config, prefix = read_json(folder, path), "pooling_mode_"
    # Older versions have a flag for each pooling. Several vectors are joined.
    flags = [name for name, is_on in config.items() if name.startswith(prefix) and is_on]
    modes = config.get("pooling_mode", [name.removeprefix(prefix) for name in flags])
    mode = modes if isinstance(modes, str) else "+".join(modes)
    mode = OUR_POOLINGS.get(mode, mode)
    validation.choice(f"pooling_mode in {path}", mode, tuple(OUR_POOLINGS.values()))
    _check_prompts(optional_json(folder, SENTENCE_TRANSFORMER), config, path)
    return {"pooling_mode": mode, "normalize": "Normalize" in modules}


def _check_modules(source, known):
    """Return the folders of the modules of sentence-transformers, or raise a `ValueError`."""
    listed = optional_json(source, "modules.json") or []
    modules = {module["type"].split(".")[-1]: module["path"] for module in listed}
    for name in modules:
        validation.choice("type in modules.json", name, known)
    return modules


def _check_prompts(settings, pooling, path):
    """Raise a `ValueError` if sentence-transformers would treat prompts in another way."""
    prompts, name = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if prompts.get(name):
        raise ValueError(
            f"`default_prompt_name` in {SENTENCE_TRANSFORMER} must be null, because no prompt is "
            f"put before a text. Received: {name!r} with the prompt {prompts[name]!r:.70}. "
            "Set it to null in the file, and put the prompt before your texts."
        )
    others = sorted(name for name, prompt in prompts.items() if prompt)
    if others and not pooling.get("include_prompt", True):
        raise ValueError(
            f"`include_prompt` in {path} must be true, because embedders pool the tokens of "
            f"prompts too. Received: false, with the prompts {others}. Set it to true in the file "
            "if your texts have no prompts."
        )


# The file of a whole model of sentence-transformers, which has its prompts.
SENTENCE_TRANSFORMER = "config_sentence_transformers.json"
# The file of the first module of sentence-transformers, in the order in which they are read.
_KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
SENTENCE_FILES = tuple(f"sentence_{kind}_config.json" for kind in _KINDS)


def read_sentence_settings(folder: str | os.PathLike[str], longest: int) -> tuple[int, bool]:
    """Return the length of the longest text of a folder, and whether texts are lowercased first.

    A file of sentence-transformers has the length, or otherwise `model_max_length` of the
    tokenizer, also for cross-encoders and `transformers`.

    Args:
        folder: The folder.
        longest: int. The longest sequence of the model.
    """
    contents = (optional_json(folder, name) for name in SENTENCE_FILES)
    settings = next(filter(None, contents), {})
    given = {**settings.get("tokenizer_args", {}), **settings.get("processor_kwargs", {})}
    of_tokenizer = optional_json(folder, "tokenizer_config.json").get("model_max_length")
    lengths = (given.get("model_max_length"), settings.get("max_seq_length"), of_tokenizer)
    length = next(filter(None, lengths), longest)
    return min(int(length), longest), bool(settings.get("do_lower_case"))


# === Outputs of tasks ===


def _logits(task: keras.Model, inputs: Config) -> Config:
    """Return the scores without their activation, which the configuration names."""
    dense = task.output_dense
    pooled = task.backbone(inputs)["pooled_output"]
    return {"logits": keras.ops.matmul(pooled, dense.kernel) + dense.bias}


def _start_and_end(task: keras.Model, inputs: Config) -> Config:
    return {f"{name}_logits": logits for name, logits in task(inputs).items()}


def _of_all_tokens(task: keras.Model, inputs: Config) -> Config:
    token_ids = inputs["token_ids"]
    positions = keras.ops.zeros_like(token_ids) + _backend.arange(keras.ops.shape(token_ids)[1])
    return {"logits": task({**inputs, "mask_positions": positions})}


def _hidden_states(model: keras.Model, inputs: Config) -> Config:
    """Return the states of a backbone or of an embedder, which adds the embeddings of texts."""
    if not hasattr(model, "pool"):
        return {"last_hidden_state": model(inputs)["sequence_output"]}
    states = model.backbone(inputs)["sequence_output"]
    return {"last_hidden_state": states, "sentence_embedding": model.pool(states, **inputs)}


TEXT_CLASSIFIER = Head(("ForSequenceClassification",), _classes_of_texts, _labels)
TEXT_RERANKER = Head(("ForSequenceClassification",), _of_reranker, _scores, _logits)
TOKEN_CLASSIFIER = Head(("ForTokenClassification",), _classes, _labels)
QUESTION_ANSWERER = Head(("ForQuestionAnswering",), outputs=_start_and_end)
MASKED_LM = Head(("ForMaskedLM", "BertForPreTraining"), _of_masked_lm, outputs=_of_all_tokens)
NO_HEAD = Head((), outputs=_hidden_states)
TEXT_EMBEDDER = Head((), _pooling, outputs=_hidden_states)
