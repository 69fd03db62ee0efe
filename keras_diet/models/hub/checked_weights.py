"""`load_weights` of backbones and tasks, which checks the file first."""

import os
from typing import TYPE_CHECKING, Any

from keras_diet.models.hub.file_errors import complete_file
from keras_diet.models.hub.weights_files import check_weights_file

if TYPE_CHECKING:
    from keras import Model
else:
    # `keras.Model` after this class would come before the classes of KerasHub.
    Model = object


class CheckedWeights(Model):
    """A mixin for models that load only complete and finite weights that they build."""

    def load_weights(
        self, filepath: str | os.PathLike[str], skip_mismatch: bool = False, **kwargs: Any
    ) -> None:
        """Load all weights, as `keras.Model.load_weights`.

        Raises:
            ValueError: If the file is damaged, or holds NaN or weights that this model does not
                build.
        """
        with complete_file(filepath):
            check_weights_file(self, filepath, skip_mismatch)
            super().load_weights(filepath, skip_mismatch, **kwargs)
