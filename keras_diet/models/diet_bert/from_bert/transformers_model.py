"""A BERT of `transformers` in memory. This file does not import `transformers`."""

from typing import Any

from keras_diet.models.diet_bert.from_bert.checkpoint import Checkpoint


def is_of_transformers(value: Any) -> bool:
    """Return whether the class of a value, or one of its base classes, is of `transformers`."""
    return any(base.__module__.split(".")[0] == "transformers" for base in type(value).__mro__)


def read_checkpoint(model: Any) -> Checkpoint:
    """Return the configuration and the weights of a model of `transformers`.

    Raises:
        ValueError: If the object is not a model, such as a tokenizer.
    """
    kind = type(model).__name__
    if not hasattr(model, "state_dict") or not hasattr(model, "config"):
        raise ValueError(
            "`bert` must be a model if it is an object of `transformers`, such as `BertModel`. "
            f"Received: {kind}"
        )
    tensors = {
        name: tensor.detach().float().cpu().numpy()
        for name, tensor in model.state_dict().items()
        if tensor.is_floating_point()
    }
    remedy = "Pass a model without adapters, pruned heads or quantization."
    config = {**model.config.to_dict(), "architectures": [kind]}
    return Checkpoint(config, tensors, f"the `{kind}`", remedy)
