"""Translation with a DietTransformer backbone."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import keras
from keras_hub.models import Seq2SeqLM

from keras_diet import validation
from keras_diet.models.diet_transformer.ctranslate2_model import write_ctranslate2_model
from keras_diet.models.diet_transformer.diet_transformer_backbone import DietTransformerBackbone
from keras_diet.models.diet_transformer.diet_transformer_seq_2_seq_lm_preprocessor import (
    DietTransformerSeq2SeqLMPreprocessor,
)
from keras_diet.models.diet_transformer.generate_checks import (
    check_generate_inputs,
    check_max_length,
    check_preprocessor,
    check_sampler,
    checked_sampler,
    checked_stop_tokens,
)
from keras_diet.models.diet_transformer.generate_step import generate_step
from keras_diet.models.hub.classes import Classes
from keras_diet.models.hub.columns import is_columns, is_one_text
from keras_diet.models.hub.losses import token_loss, warn_if_loss_does_not_fit
from keras_diet.models.hub.preprocessor import check_preprocessor_fits
from keras_diet.models.hub.task import HubTask
from keras_diet.models.hub.token_inputs import TokenInput
from keras_diet.samplers import BeamSearchSampler
from keras_diet.types import Config


@keras.saving.register_keras_serializable(package="keras_diet")
class DietTransformerSeq2SeqLM(HubTask, Seq2SeqLM):
    """A DietTransformer backbone that predicts the next token of a target, for translation.

    With the token embedding `E` and the output `h_i` of the decoder for the target's token `i`:

        logits_i = E h_i

    With a `preprocessor`, `fit` takes texts, and `generate` returns texts.

    Args:
        backbone: A `keras_diet.models.DietTransformerBackbone`.
        preprocessor: A `keras_diet.models.DietTransformerSeq2SeqLMPreprocessor`, or `None` for
            inputs that are already preprocessed. Defaults to `None`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.

    Call arguments:
        inputs: The backbone's dictionary.

    Returns:
        Logits of shape `(B, T, vocabulary_size)`.

    Raises:
        ValueError: If the preprocessor has another number of tokens than the backbone, or longer
            sequences.
        TypeError: If an argument is unknown.

    Example:

    ```python
    backbone = keras_diet.models.DietTransformerBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16,
    )
    seq_2_seq_lm = keras_diet.models.DietTransformerSeq2SeqLM(backbone)
    inputs = {
        "encoder_token_ids": np.array([[5, 6, 7, 2]]),
        "encoder_padding_mask": np.ones((1, 4), dtype="int32"),
        # The start token, and room for the target.
        "decoder_token_ids": np.array([[1, 0, 0, 0, 0, 0]]),
        "decoder_padding_mask": np.array([[1, 0, 0, 0, 0, 0]]),
    }
    outputs = seq_2_seq_lm.generate(inputs, stop_token_ids=(2,))
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), section 4.3
     - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
    """

    backbone_cls = DietTransformerBackbone
    preprocessor_cls = DietTransformerSeq2SeqLMPreprocessor
    generate_step = generate_step

    def __init__(
        self,
        backbone: DietTransformerBackbone,
        preprocessor: keras.layers.Layer | None = None,
        compile: bool = True,
        name: str | None = None,
        trainable: bool | None = None,
    ) -> None:
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor

        # === Functional Model ===
        hidden_states = backbone(backbone.input)["decoder_sequence_output"]
        outputs = backbone.token_embedding(hidden_states, reverse=True)
        super().__init__(
            inputs=backbone.input, outputs=outputs, compile=compile, name=name, trainable=trainable
        )

    @property
    def classes(self) -> Classes:
        """The labels that a sparse loss expects."""
        return Classes("vocabulary_size", self.backbone.vocabulary_size)

    @property
    def token_inputs(self) -> dict[str, TokenInput]:
        """What each input holds."""
        inputs = self.backbone.token_inputs
        name = "decoder_token_ids"
        return {**inputs, name: dataclasses.replace(inputs[name], has_labels=True)}

    def compile(
        self,
        optimizer: Any = "auto",
        loss: Any = "auto",
        *,
        weighted_metrics: Any = "auto",
        sampler: Any = "auto",
        **kwargs: Any,
    ) -> None:
        """Configure training and generation, as `keras_hub.models.Seq2SeqLM.compile`.

        A loss that takes probabilities gives a warning, because the model returns logits.

        Args:
            optimizer: As in `keras_hub.models.Seq2SeqLM.compile`. Defaults to `"auto"`.
            loss: As in `keras_hub.models.Seq2SeqLM.compile`. Defaults to `"auto"`, which means the
                cross-entropy averaged over the tokens of the targets.
            weighted_metrics: As in `keras_hub.models.Seq2SeqLM.compile`. Defaults to `"auto"`.
            sampler: A `keras_hub.samplers.Sampler` or its name. Defaults to `"auto"`, which means
                `keras_diet.samplers.BeamSearchSampler()`.
            **kwargs: Keyword arguments of `keras.Model.compile`.
        """
        is_auto = isinstance(sampler, str) and sampler == "auto"
        sampler = BeamSearchSampler() if is_auto else checked_sampler(sampler)
        super().compile(
            optimizer=optimizer,
            loss=token_loss(loss),
            weighted_metrics=weighted_metrics,
            sampler=sampler,
            **kwargs,
        )
        warn_if_loss_does_not_fit(self, "logits")

    def get_compile_config(self) -> Config:
        """Return the arguments of `compile`, with the sampler, which KerasHub leaves out."""
        config = super().get_compile_config()
        if not config:
            return config
        return {**config, "sampler": keras.saving.serialize_keras_object(self.sampler)}

    def generate(
        self,
        inputs: Any,
        max_length: int | None = None,
        stop_token_ids: Any = "auto",
        strip_prompt: bool = False,
        batch_size: int | None = None,
        verbose: int = 0,
    ) -> Any:
        """Translate, as `keras_hub.models.Seq2SeqLM.generate`, also in batches.

        Args:
            inputs: A text, a list of texts, or what else the preprocessor's `generate_preprocess`
                takes. Without a preprocessor, the backbone's dictionary.
            max_length: int or `None`. The length of the targets with start token and prompt.
                Defaults to `None`, which means the default of the preprocessor.
            stop_token_ids: Tokens that end a target, or `None`. Defaults to `"auto"`, which means
                the end token of the tokenizer.
            strip_prompt: Must be `False`. Translations contain their prompts.
            batch_size: int or `None`. Translates the texts in batches of texts of similar length.
                The results have the order of the texts. Defaults to `None`, which means a single
                batch.
            verbose: int. 1 shows a progress bar over the batches. Defaults to `0`.

        Returns:
            A text for a text, and a list of texts for a list. Without a preprocessor, the
            dictionary that `generate_step` returns.

        Raises:
            ValueError: If a source is empty, or a source or prompt is too long; if an argument
                cannot be right; or if the model was not compiled.
        """
        if strip_prompt:
            raise ValueError(
                "`strip_prompt` must be False, because a source is not a prompt. Received: "
                "strip_prompt=True. Leave it out."
            )
        check_sampler(self)
        check_preprocessor(self.preprocessor, max_length)
        check_preprocessor_fits(self.preprocessor, self.backbone)
        check_max_length(max_length, self.backbone)
        stop_token_ids = checked_stop_tokens(stop_token_ids, self.backbone.vocabulary_size)
        validation.optional_positive_int("batch_size", batch_size)
        if batch_size is None or is_one_text(inputs):
            inputs = self._one_batch(inputs)
            return super().generate(inputs, max_length=max_length, stop_token_ids=stop_token_ids)
        texts, lengths = self._texts(inputs, max_length)
        order = sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)
        bar = keras.utils.Progbar(len(lengths), verbose=verbose, unit_name="text")
        translations: dict[int, str] = {}
        for start in range(0, len(lengths), batch_size):
            places = order[start : start + batch_size]
            batch = {name: [each[i] for i in places] for name, each in texts.items()}
            found = super().generate(batch, max_length=max_length, stop_token_ids=stop_token_ids)
            translations.update(zip(places, found, strict=True))
            bar.update(len(translations))
        return [translations[i] for i in range(len(lengths))]

    def _one_batch(self, inputs):
        """Return checked inputs of a single batch."""
        if self.preprocessor is None and (inputs is None or is_columns(inputs)):
            check_generate_inputs(inputs, self.token_inputs)
        # KerasHub changes the dictionary.
        return dict(inputs) if isinstance(inputs, Mapping) else inputs

    def _texts(self, inputs, max_length):
        """Return the texts that are translated in batches, and the numbers of source tokens.

        All texts are checked, because an error in the last batch would come late.
        """
        preprocessor = self.preprocessor
        is_ours = isinstance(preprocessor, DietTransformerSeq2SeqLMPreprocessor)
        if not is_ours or not is_columns(inputs):
            kind = type(preprocessor).__name__
            raise ValueError(
                "`batch_size` needs a `DietTransformerSeq2SeqLMPreprocessor` and a list of texts. "
                f"Received: inputs={type(inputs).__name__}, preprocessor={kind}. Leave "
                "`batch_size` out, and pass one batch."
            )
        if isinstance(inputs, list) and not inputs:
            return {}, []
        texts = preprocessor.with_prompts(inputs)
        sources, _ = preprocessor.rows_of_tokens(texts, max_length=max_length)
        return texts, [len(tokens) for tokens in sources]

    def export_to_ctranslate2(self, path: str | os.PathLike[str]) -> None:
        """Write a CTranslate2 model, which translates quickly on CPUs and GPUs.

        The folder also gets the SentencePiece model, because CTranslate2 translates tokens. Its
        weights have float32. CTranslate2 adds the start and end tokens itself. Without a length
        penalty, it finds the same translations. With one, it divides by `len^alpha` and not by
        GNMT's `((5 + len) / 6)^alpha`.

        Args:
            path: The folder. It is made if it does not exist.

        Raises:
            ValueError: If the model has no preprocessor, a position encoding other than
                `"sinusoidal"`, `"input"`, `"none"` and `"shaw"`, `"shaw"` with
                `cross_attention_positions`, an activation other than relu, gelu and silu, or
                quantized weights.
            ImportError: If the package ctranslate2 is not installed.

        Example:

        ```python
        seq_2_seq_lm.export_to_ctranslate2("ctranslate2_model")
        translator = ctranslate2.Translator("ctranslate2_model")
        tokenizer = sentencepiece.SentencePieceProcessor("ctranslate2_model/vocabulary.spm")
        tokens = tokenizer.encode("the quick fox", out_type=str)
        result, = translator.translate_batch([tokens], beam_size=10)
        tokenizer.decode(result.hypotheses[0])
        ```

        References:
         - [CTranslate2](https://opennmt.net/CTranslate2/)
        """
        write_ctranslate2_model(self, path)
