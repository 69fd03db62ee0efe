"""Masked language modeling with a DietBert backbone."""

import keras
from keras_hub.layers import MaskedLMHead
from keras_hub.models import MaskedLM

from keras_diet.layers.initializers import bert_initializer
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_masked_lm_preprocessor import (
    DietBertMaskedLMPreprocessor,
)
from keras_diet.models.diet_bert.diet_bert_task import DietBertTask


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertMaskedLM(DietBertTask, MaskedLM):
    """A DietBert backbone with a head that predicts masked tokens.

    Conventions are those of `keras_hub.models.BertMaskedLM`. For a masked position `m`,

        logits_m = E LayerNorm(gelu(W h_m + b)) + c

    with the hidden state `h_m` and the token embedding `E` of the backbone. With a
    `preprocessor`, `fit`, `evaluate` and `predict` take raw strings, and tuples `(a, b)` of them
    for pairs.

    The default loss is the mean over the masked tokens, `sum(w * loss) / sum(w)`. KerasHub's
    divides by the number of all mask slots, those that are padding included, and so reports
    less than the true loss.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`.
        preprocessor: A `keras_diet.models.DietBertMaskedLMPreprocessor`, or `None` for inputs
            that are preprocessed already. Defaults to `None`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves what is frozen frozen.

    Call arguments:
        inputs: The backbone's dictionary with `"mask_positions"`, integers of shape `(B, M)`.

    Returns:
        Logits of shape `(B, M, vocabulary_size)`.

    Raises:
        ValueError: If the preprocessor's tokenizer knows more tokens, or its sequences are longer,
            than the backbone's; in `fit`, `evaluate` and `predict` for an empty batch, more texts
            than segments, and labels that are no integers in `[0, vocabulary_size)`.
        TypeError: For unknown arguments.

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

    def __init__(self, backbone, preprocessor=None, compile=True, name=None, trainable=None):
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
    def classes(self):
        """What the labels of a sparse loss are."""
        return "vocabulary_size", self.backbone.vocabulary_size

    def compile(self, optimizer="auto", loss="auto", *, weighted_metrics="auto", **kwargs):
        """Configure training, as `keras_hub.models.MaskedLM.compile` but for the loss.

        Args:
            optimizer: As in `keras_hub.models.MaskedLM.compile`. Defaults to `"auto"`.
            loss: As in `keras_hub.models.MaskedLM.compile`. Defaults to `"auto"`, the
                cross-entropy averaged over the masked tokens.
            weighted_metrics: As in `keras_hub.models.MaskedLM.compile`. Defaults to `"auto"`.
            **kwargs: Keyword arguments of `keras.Model.compile`.
        """
        if isinstance(loss, str) and loss == "auto":
            loss = keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction="mean_with_sample_weight"
            )
        super().compile(optimizer=optimizer, loss=loss, weighted_metrics=weighted_metrics, **kwargs)
