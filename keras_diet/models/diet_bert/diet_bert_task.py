"""What the tasks of DietBert have in common."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

from keras_diet.models.diet_bert.cached_positions import rebuild_with_cached_positions
from keras_diet.models.hub.preprocessor import HubPreprocessor
from keras_diet.models.hub.task import HubTask
from keras_diet.models.hub.texts import is_pair

_Method = TypeVar("_Method", bound=Callable[..., Any])
# Masked language models and embedders do not use the pooler.
_POOLER_IS_NOT_TRAINED = (
    r"Gradients do not exist for variables \['pooled_dense/kernel', 'pooled_dense/bias'\]"
)


def _without_warning(method: _Method) -> _Method:
    """Return a method that trains without Keras's warning about the pooler."""

    @functools.wraps(method)
    def train(*args, **kwargs):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _POOLER_IS_NOT_TRAINED, UserWarning)
            return method(*args, **kwargs)

    return cast(_Method, train)


class DietBertTask(HubTask):
    """A task that takes at most as many texts in each input as the backbone has segments."""

    # `keras_diet.layers.cache_positions` calls it.
    with_cached_positions = rebuild_with_cached_positions

    fit = _without_warning(HubTask.fit)
    train_on_batch = _without_warning(HubTask.train_on_batch)

    def check_inputs(self, x: Any) -> None:
        """Raise a `ValueError` if `x` cannot be a batch of inputs."""
        super().check_inputs(x)
        num_segments = self.backbone.num_segments
        takes_texts = isinstance(self.preprocessor, HubPreprocessor)
        uses_segments = self.backbone.segment_encoding != "none"
        if takes_texts and uses_segments and is_pair(x) and len(x) > num_segments:
            raise ValueError(
                "`x` must be a tuple of at most `backbone.num_segments` texts. "
                f"Received: {len(x)} texts, backbone.num_segments={num_segments}. Join some of the "
                "texts, or use a backbone with a larger `num_segments`."
            )
