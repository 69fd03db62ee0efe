"""Translation with a DietTransformer backbone."""

import functools
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops
from keras_hub.models import Seq2SeqLM

from keras_diet import _backend
from keras_diet._recording import RecordableFunction, RecordedFunction
from keras_diet.data.columns import is_columns, is_one_text, take
from keras_diet.layers.transformer.diet_decoder import DecoderMemory
from keras_diet.models.diet_transformer.ctranslate2_model import write_ctranslate2_model
from keras_diet.models.diet_transformer.diet_transformer_backbone import DietTransformerBackbone
from keras_diet.models.diet_transformer.diet_transformer_seq_2_seq_lm_preprocessor import (
    SOURCE_TOKENS,
    DietTransformerSeq2SeqLMPreprocessor,
)
from keras_diet.models.hub.labels import Classes, token_loss
from keras_diet.models.hub.model_inputs import check_token_inputs
from keras_diet.models.hub.preprocessor import checked_preprocessor
from keras_diet.models.hub.task import HubTask
from keras_diet.samplers import BeamSearchSampler
from keras_diet.training.trainers import divided, return_weights, whole_batches
from keras_diet.types import Config, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class DietTransformerSeq2SeqLM(HubTask, Seq2SeqLM):
    """A DietTransformer backbone that predicts the next token of a target, for translation.

    With the token embedding `E` and the output `h_i` of the decoder for the target's token `i`:

        logits_i = E h_i

    With a `preprocessor`, `fit` takes texts, and `generate` returns texts. The default loss is the
    mean over the tokens of the targets, `sum(w * loss) / sum(w)`, also over several batches.
    `weighted_metrics` default to the accuracy over these tokens.

    `compile` takes a `sampler`, a `keras_hub.samplers.Sampler` or its name. Without one, the model
    keeps its sampler, at first `keras_diet.samplers.BeamSearchSampler()`. Files and presets hold
    it. `jit_compile` is for training. On TensorFlow, `generate` always uses XLA, unless
    `run_eagerly`.

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
        ValueError: If the preprocessor has another number of tokens than the backbone.
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
    output_kind = "logits"

    def make_head(self) -> None:
        """Set the default sampler, which `compile` may change."""
        self.sampler = BeamSearchSampler()

    def outputs_of(self, **inputs: Tensor) -> Tensor:
        """Return the logits for the inputs of the backbone."""
        hidden_states = self.backbone(inputs)["decoder_sequence_output"]
        return self.backbone.token_embedding(hidden_states, reverse=True)

    @property
    def classes(self) -> Classes:
        """The labels that a sparse loss expects."""
        return Classes("vocabulary_size", self.backbone.vocabulary_size)

    def compile_arguments(self, given: Config) -> Config:
        """Return the arguments of `compile` with the defaults of the task."""
        return {"loss": token_loss(), "sampler": self.sampler, **given}

    def get_config(self) -> Config:
        """Return the arguments of `from_config`: those of the constructor, and the sampler."""
        sampler = keras.saving.serialize_keras_object(self.sampler)
        return {**super().get_config(), "sampler": sampler}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Build the task from its configuration, with its sampler."""
        config = dict(config)
        sampler = config.pop("sampler", None)
        task = super().from_config(config)
        if sampler is not None:
            task.sampler = keras.saving.deserialize_keras_object(sampler)
        return task

    # === Generation ===

    def make_generate_function(self) -> Callable[..., Any]:
        """Return the compiled function of `generate`. On TensorFlow it uses XLA, also on CPUs.

        On PyTorch it runs recorded graphs, unless the model is compiled with `run_eagerly=True`.
        Without XLA, TensorFlow calls each operation of a step by itself, which takes 3 to 4 times
        as long for one text. A new shape is compiled with XLA, and traced without it, which takes
        about as long.
        """
        is_new = self.generate_function is None
        if is_new and keras.config.backend() == "torch" and not self.run_eagerly:
            import torch

            step = functools.partial(self.generate_step, recordings={})
            self.generate_function = torch.no_grad()(step)
        jit_compile = self.jit_compile  # type: ignore[has-type]
        self.jit_compile = jit_compile or keras.config.backend() == "tensorflow"
        try:
            return super().make_generate_function()
        finally:
            self.jit_compile = jit_compile

    @whole_batches()
    def generate(
        self,
        inputs: Any,
        max_length: int | None = None,
        stop_token_ids: Any = "auto",
        batch_size: int | None = None,
        verbose: int = 0,
        truncate: bool = False,
    ) -> Any:
        """Translate, as `keras_hub.models.Seq2SeqLM.generate`, also in batches.

        Args:
            inputs: A text, a list of texts, or what else the preprocessor's `generate_preprocess`
                takes. Or a `tf.data.Dataset` of batches of it. Without a preprocessor, the
                backbone's dictionary.
            max_length: int or `None`. The length of the targets with start token and prompt.
                Defaults to `None`, which means the default of the preprocessor.
            stop_token_ids: Tokens that end a target, or `None`. Defaults to `"auto"`, which means
                the end token of the tokenizer.
            batch_size: int or `None`. Translates the texts in batches of texts of similar length.
                The results have the order of the texts. Defaults to `None`, which means a single
                batch.
            verbose: int. 1 shows a progress bar over the batches. Defaults to `0`.
            truncate: bool. Whether a source or a prompt that is too long is cut, as in `fit`.
                Defaults to `False`: it is an error.

        Returns:
            A text for a text, and a list of texts for a list. Without a preprocessor, the
            dictionary that `generate_step` returns.

        Raises:
            ValueError: If a source is empty, if a source or a prompt is too long, if `max_length`
                is longer than the model, or if an argument would be ignored.
        """
        if self.preprocessor is None and (max_length or batch_size or truncate):
            raise ValueError(
                "`max_length`, `batch_size` and `truncate` need a preprocessor. Received: "
                f"preprocessor=None, max_length={max_length}, batch_size={batch_size}, "
                f"truncate={truncate}"
            )
        if stop_token_ids is not None and not isinstance(stop_token_ids, str):
            # Without any, a target never ends.
            stop_token_ids = tuple(map(operator.index, stop_token_ids)) or None
        return_weights(self.backbone.models())
        options = {"max_length": max_length, "stop_token_ids": stop_token_ids}
        if self.preprocessor is None:
            if is_columns(inputs):
                check_token_inputs(inputs, self.token_inputs)
            # KerasHub changes the dictionary.
            inputs = dict(inputs) if isinstance(inputs, Mapping) else inputs
            return super().generate(inputs, **options)
        preprocessor = checked_preprocessor(self, "generate")
        if hasattr(inputs, "as_numpy_iterator"):
            options |= {"batch_size": batch_size, "verbose": verbose, "truncate": truncate}
            # An element may be one text.
            batches = (
                keras.tree.map_structure(np.atleast_1d, b) for b in inputs.as_numpy_iterator()
            )
            return [text for batch in batches for text in self.generate(batch, **options)]
        # All texts are checked before the first batch, because a later error would come late.
        tokens = preprocessor.rows_of_tokens(inputs, max_length=max_length, truncate=truncate)
        lengths = [len(source) for source in tokens[SOURCE_TOKENS]]
        order = list(range(len(lengths)))
        if batch_size is None:
            batch_size = len(order)
        else:
            order.sort(key=lengths.__getitem__, reverse=True)
        bar = keras.utils.Progbar(len(order), verbose=verbose, unit_name="text")
        translations: dict[int, str] = {}
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            texts = super().generate(take(tokens, rows), **options)
            translations.update(zip(rows, texts, strict=True))
            bar.update(len(translations))
        texts = [translations[row] for row in range(len(order))]
        return texts[0] if is_one_text(inputs) else texts

    def generate_step(
        self,
        inputs: dict[str, Tensor],
        stop_token_ids: Sequence[int] | None = None,
        recordings: dict[Any, Any] | None = None,
    ) -> dict[str, Tensor]:
        """Return the targets of a batch of sources. `generate` compiles it.

        The encoder runs once, and the keys and values of its output are computed once.

        Args:
            inputs: The backbone's dictionary. Each target begins with at least one token, and has
                room for the tokens that are generated.
            stop_token_ids: Tokens that end a target, or `None`.
            recordings: Dictionary that keeps the recorded graphs of PyTorch, or `None`.

        Returns:
            A dictionary with `"decoder_token_ids"`, and `"decoder_padding_mask"` that is true up to
            the first stop token.
        """
        inputs = divided(inputs)
        backbone = self.backbone
        source_ids = ops.convert_to_tensor(inputs["encoder_token_ids"])
        source_mask = ops.cast(inputs["encoder_padding_mask"], "bool")
        prompt_mask = ops.cast(inputs["decoder_padding_mask"], "bool")
        prompt = inputs["decoder_token_ids"]
        batch_size, length = ops.shape(prompt)
        encode = backbone.encode
        if recordings is not None:
            encode = recordings.setdefault("encode", RecordedFunction(encode))
        memory = backbone.decoder.start_memory(
            batch_size,
            length,
            encoder_outputs=encode(source_ids, source_mask),
            encoder_padding_mask=source_mask,
        )

        # All beams of a row read the same source, so the sampler need not repeat it.
        shared = {
            "source": memory.source,
            "source_padding_mask": memory.source_padding_mask,
            "output_kernel": self._output_kernel(),
        }
        token_ids = self.sampler(
            next=RecordableFunction(self._next_token, shared, recordings),
            prompt=prompt,
            cache=memory.target,
            index=1,
            mask=prompt_mask,
            stop_token_ids=stop_token_ids,
            model=self,
        )
        ends = ops.zeros_like(prompt_mask)
        for stop_token_id in stop_token_ids or ():
            ends = ops.logical_or(ends, ops.equal(token_ids, stop_token_id))
        # Stop tokens of the prompt do not stop.
        ends = ops.cast(ops.logical_and(ends, ops.logical_not(prompt_mask)), "int32")
        return {
            "decoder_token_ids": token_ids,
            "decoder_padding_mask": ops.equal(ops.cumsum(ends, axis=-1) - ends, 0),
        }

    def _output_kernel(self):
        """Return the transposed embeddings, or `None` if they are quantized.

        XLA would transpose them in each step, so they take the memory of a second matrix.
        """
        embedding = self.backbone.token_embedding
        is_quantized = embedding.quantization_mode is not None
        return None if is_quantized else ops.transpose(embedding.embeddings)

    def _next_token(self, prompt, target, index, source, source_padding_mask, output_kernel):
        last = _backend.slice(prompt, (0, index - 1), (ops.shape(prompt)[0], 1))
        memory = DecoderMemory(target, source, source_padding_mask)
        hidden_states, after = self.backbone.decode_step(last, memory, index - 1)
        if output_kernel is None:
            logits = self.backbone.token_embedding(hidden_states, reverse=True)
        else:
            logits = ops.matmul(hidden_states, output_kernel)
        return logits[:, 0], hidden_states[:, 0], after.target

    # === Files ===

    def export_to_ctranslate2(self, path: str | os.PathLike[str]) -> None:
        """Write a CTranslate2 model, which translates quickly on CPUs and GPUs.

        The folder also gets the SentencePiece model, because CTranslate2 translates tokens. Its
        weights have float32. CTranslate2 adds the start and end tokens itself. Without a length
        penalty, it finds the same translations. With one, it divides by `len^alpha` and not by
        GNMT's `((5 + len) / 6)^alpha`.

        Args:
            path: The folder. It is made if it does not exist.

        Raises:
            ValueError: If the model has a position encoding other than
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
