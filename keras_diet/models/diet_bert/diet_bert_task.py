"""What the tasks of DietBert have in common."""

from typing import Any

from keras_diet.models.diet_bert.cached_positions import rebuild_with_cached_positions
from keras_diet.models.hub.task import HubTask


class DietBertTask(HubTask):
    """A task that takes at most as many texts in each input as the backbone has segments."""

    # `keras_diet.layers.cache_positions` calls it.
    with_cached_positions = rebuild_with_cached_positions

    def columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
        """Return texts, labels and weights as columns, after checking them."""
        x, y, sample_weight = super().columns(x, y, sample_weight)
        num_segments = self.backbone.num_segments
        uses_segments = self.backbone.segment_encoding != "none"
        if uses_segments and isinstance(x, tuple) and len(x) > num_segments:
            raise ValueError(
                "`x` must be a tuple of at most `backbone.num_segments` texts. "
                f"Received: {len(x)} texts, backbone.num_segments={num_segments}. Join some of the "
                "texts, or use a backbone with a larger `num_segments`."
            )
        return x, y, sample_weight
