"""Masked language modeling with a DietBert backbone."""

from typing import Any

import keras
from keras_hub.layers import MaskedLMHead
from keras_hub.models import MaskedLM

from keras_diet.layers.initializers import bert_initializer
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_masked_lm_preprocessor import (
    DietBertMaskedLMPreprocessor,
)
from keras_diet.models.diet_bert.diet_bert_task import DietBertTask
from keras_diet.models.diet_bert.fill_mask import fill_mask
from keras_diet.models.hub.labels import Classes
from keras_diet.models.hub.loss_inputs import warn_if_loss_does_not_fit
from keras_diet.models.hub.token_inputs import TokenInput, ids_below
from keras_diet.models.hub.token_loss import token_loss


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertMaskedLM(DietBertTask, MaskedLM):
    """A DietBert backbone with a head that predicts masked tokens.

    Its conventions are the same as in `keras_hub.models.BertMaskedLM`. For a masked position `m`,

        logits_m = E LayerNorm(gelu(W h_m + b)) + c

    with the hidden state `h_m` and the token embedding `E` of the backbone. With a
    `preprocessor`, `fit`, `evaluate` and `predict` take raw strings, and tuples `(a, b)` of them
    for pairs.

    The default loss is the mean over the masked tokens, `sum(w * loss) / sum(w)`. KerasHub divides
    by the number of all mask positions, including unused ones, and reports less than the true loss.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`.
        preprocessor: A `keras_diet.models.DietBertMaskedLMPreprocessor`, or `None` for inputs
            that are already preprocessed. Defaults to `None`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.

    Call arguments:
        inputs: The backbone's dictionary with `"mask_positions"`, integers of shape `(B, M)`.

    Returns:
        Logits of shape `(B, M, vocabulary_size)`.

    Raises:
        ValueError: If the preprocessor has more tokens or longer sequences than the backbone.
            `fit`, `evaluate` and `predict` raise it for an empty batch, for more texts than
            segments, and for labels that are not integers in `[0, vocabulary_size)`.
        TypeError: If an argument is unknown.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
    preprocessor = keras_diet.models.DietBertMaskedLMPreprocessor(
        keras_diet.models.DietBertTokenizer(vocabulary),
        sequence_length=8,
        mask_selection_length=2,
    )
    masked_lm = keras_diet.models.DietBertMaskedLM(
        keras_diet.models.DietBertBackbone(
            vocabulary_size=len(vocabulary), num_layers=2, num_heads=2, hidden_dim=8,
            intermediate_dim=16, max_sequence_length=8,
        ),
        preprocessor,
    )
    masked_lm.fit(["the quick fox", "the foxes"], batch_size=2, verbose=0)
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
    """

    backbone_cls = DietBertBackbone
    preprocessor_cls = DietBertMaskedLMPreprocessor
    fill_mask = fill_mask

    def __init__(
        self,
        backbone: DietBertBackbone,
        preprocessor: keras.layers.Layer | None = None,
        compile: bool = True,
        name: str | None = None,
        trainable: bool | None = None,
    ) -> None:
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.masked_lm_head = MaskedLMHead(
            vocabulary_size=backbone.vocabulary_size,
            token_embedding=backbone.token_embedding,
            intermediate_activation="gelu",
            kernel_initializer=bert_initializer(),
            dtype=backbone.dtype_policy,
            name="mlm_head",
        )

        # === Functional Model ===
        inputs = {
            **backbone.input,
            "mask_positions": keras.Input(shape=(None,), dtype="int32", name="mask_positions"),
        }
        hidden_states = backbone(backbone.input)["sequence_output"]
        outputs = self.masked_lm_head(hidden_states, inputs["mask_positions"])
        super().__init__(
            inputs=inputs, outputs=outputs, compile=compile, name=name, trainable=trainable
        )

    @property
    def token_inputs(self) -> dict[str, TokenInput]:
        """What each input holds after preprocessing."""
        length = self.backbone.max_sequence_length
        positions = ids_below(length, "max_sequence_length", positions_in="token_ids")
        return {**super().token_inputs, "mask_positions": positions}

    @property
    def classes(self) -> Classes:
        """The labels that a sparse loss expects."""
        return Classes("vocabulary_size", self.backbone.vocabulary_size)

    def compile(
        self,
        optimizer: Any = "auto",
        loss: Any = "auto",
        *,
        weighted_metrics: Any = "auto",
        **kwargs: Any,
    ) -> None:
        """Configure training, as `keras_hub.models.MaskedLM.compile`, with another default loss.

        A loss that takes probabilities gives a warning, because the model returns logits.

        Args:
            optimizer: As in `keras_hub.models.MaskedLM.compile`. Defaults to `"auto"`.
            loss: As in `keras_hub.models.MaskedLM.compile`. Defaults to `"auto"`, which means the
                cross-entropy averaged over the masked tokens.
            weighted_metrics: As in `keras_hub.models.MaskedLM.compile`. Defaults to `"auto"`.
            **kwargs: Keyword arguments of `keras.Model.compile`.
        """
        super().compile(
            optimizer=optimizer, loss=token_loss(loss), weighted_metrics=weighted_metrics, **kwargs
        )
        warn_if_loss_does_not_fit(self, "logits")
