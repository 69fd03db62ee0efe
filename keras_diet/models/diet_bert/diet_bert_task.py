"""What the tasks of DietBert have in common."""

from typing import Any

from keras_diet.models.diet_bert.cached_positions import rebuild_with_cached_positions
from keras_diet.models.hub.preprocessor import HubPreprocessor
from keras_diet.models.hub.task import HubTask
from keras_diet.models.hub.texts import is_pair


class DietBertTask(HubTask):
    """A task that takes at most as many texts in each input as the backbone has segments."""

    # `keras_diet.layers.cache_positions` calls it.
    with_cached_positions = rebuild_with_cached_positions

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
