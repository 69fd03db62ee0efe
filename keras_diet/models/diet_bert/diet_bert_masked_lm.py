"""Masked language modeling with a DietBert backbone."""

from typing import Any

import keras
import numpy as np
from keras import ops
from keras_hub.layers import MaskedLMHead
from keras_hub.models import MaskedLM, MaskedLMPreprocessor

from keras_diet import validation
from keras_diet.data.columns import number_of_rows, texts_of
from keras_diet.layers.configuration import takes_arguments_of
from keras_diet.layers.initializers import bert_initializer
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone, activation_function
from keras_diet.models.diet_bert.diet_bert_task import DietBertPreprocessor, DietBertTask
from keras_diet.models.diet_bert.hugging_face.heads import MASKED_LM
from keras_diet.models.hub.labels import Classes, token_loss
from keras_diet.models.hub.model_inputs import TokenInput, ids_below
from keras_diet.models.hub.preprocessor import checked_preprocessor
from keras_diet.models.hub.task import HubTask
from keras_diet.models.hub.token_rows import inputs_of, largest, padded, template_of
from keras_diet.pretraining.masking import mask_tokens
from keras_diet.types import Columns, Config, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertMaskedLMPreprocessor(DietBertPreprocessor, MaskedLMPreprocessor):
    """Tokenize, pack and mask raw text for the masked language modeling task.

    This is `keras_hub.models.BertMaskedLMPreprocessor` for DietBert models. The input is
    `[CLS]`, then the tokens of each text followed by `[SEP]`, then padding. Some tokens are
    selected, by the rule of `keras_diet.pretraining.mask_tokens`. A selected token is replaced by
    `[MASK]` or by a random token, or is kept. Special tokens are never selected, also those that
    were added to the tokenizer, such as markers of entities. Each epoch of `fit` has new masks,
    which depend on the seed, the epoch and the index of the batch. Validation has the same masks
    each time, with the same batch size. To pretrain on documents, use `keras_diet.pretraining`,
    which packs full sentences without padding.

    Args:
        tokenizer: A `keras_diet.models.DietBertTokenizer`, `DietBertSentencePieceTokenizer` or
            `HuggingFaceTokenizer`.
        sequence_length: int. Length of the packed inputs, in tokens. Defaults to `512`.
        truncate: `"round_robin"` or `"waterfall"`. How several texts are shortened to fit.
            Defaults to `"round_robin"`.
        length_buckets: tuple of int or `None`. Shorter lengths to which a batch may be padded, if
            they hold its longest text. Defaults to `None`: all batches have `sequence_length`.
        mask_selection_rate: float. Fraction of the tokens of a text that are selected, but at least
            one token. Defaults to `0.15`.
        mask_selection_length: int. Largest number of selected tokens. Defaults to `96`.
        mask_token_rate: float. Probability that a selected token is replaced by `[MASK]`.
            Defaults to `0.8`.
        random_token_rate: float. Probability that a selected token is replaced by a random one.
            Defaults to `0.1`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        x: A string, a batch of strings, or a tuple of them for texts of several segments.
        y: Must be `None`. The preprocessor makes the labels.
        sample_weight: Must be `None`. The preprocessor makes the weights.

    Returns:
        A tuple `(x, y, sample_weight)` of NumPy arrays. `x` is a dictionary of `"token_ids"`,
        `"segment_ids"`, `"padding_mask"` of shape `(B, sequence_length)` and `"mask_positions"` of
        shape `(B, mask_selection_length)`. `y` holds the original tokens at these positions, and
        `sample_weight` is 1 for selected tokens and 0 for unused positions.

    Raises:
        ValueError: If a text is missing, for an empty batch, for segments of another number than
            texts, and for a `y` or `sample_weight` that is not `None`.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
    preprocessor = keras_diet.models.DietBertMaskedLMPreprocessor(
        keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8
    )
    x, y, sample_weight = preprocessor(["the quick fox", "the foxes"])
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
    """

    makes_labels = True

    def make_batch(self, rows: Columns, generator: np.random.Generator | None = None) -> Columns:
        """Return inputs with masks, the tokens behind the masks, and their weights."""
        inputs, _, _ = super().make_batch(rows)
        features, labels, weights = mask_tokens(
            inputs["token_ids"],
            generator or np.random.default_rng(np.random.randint(2**31)),
            vocabulary_size=self.tokenizer.vocabulary_size(),
            mask_token_id=self.tokenizer.mask_token_id,
            unselectable_token_ids=self.tokenizer.special_token_ids,
            pad_token_id=self.tokenizer.pad_token_id,
            mask_selection_rate=self.mask_selection_rate,
            mask_selection_length=self.mask_selection_length,
            mask_token_rate=self.mask_token_rate,
            random_token_rate=self.random_token_rate,
        )
        masked = {name: features[name] for name in ("token_ids", "mask_positions")}
        return {**inputs, **masked}, labels, weights


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertMaskedLM(DietBertTask, MaskedLM):
    """A DietBert backbone with a head that predicts masked tokens.

    Its conventions are the same as in `keras_hub.models.BertMaskedLM`. For a masked position `m`,

        logits_m = E LayerNorm(gelu(W h_m + b)) + c

    with the hidden state `h_m` and the token embedding `E` of the backbone. With a
    `preprocessor`, `fit`, `evaluate` and `predict` take raw strings, and tuples `(a, b)` of them
    for pairs.

    The default loss is the mean over the masked tokens, `sum(w * loss) / sum(w)`, also over several
    batches. KerasHub divides by the number of all mask positions, including unused ones, and
    reports less than the true loss. `weighted_metrics` default to the accuracy over the masked
    tokens.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`.
        preprocessor: A `keras_diet.models.DietBertMaskedLMPreprocessor`, or `None` for inputs
            that are already preprocessed. Defaults to `None`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.
        activation: Activation of the head, by name. Defaults to `"gelu"`.
        layer_norm_epsilon: float. Epsilon of the normalization in the head. Defaults to `1e-5`.

    Call arguments:
        inputs: The backbone's dictionary with `"mask_positions"`, integers of shape `(B, M)`. It
            may have `"document_ids"`.

    Returns:
        Logits of shape `(B, M, vocabulary_size)`.

    Raises:
        ValueError: If the preprocessor has more tokens than the backbone.
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

    preprocessor_cls = DietBertMaskedLMPreprocessor
    output_kind = "logits"
    trained_head = MASKED_LM
    takes_documents = True

    @takes_arguments_of(HubTask)
    def __init__(
        self,
        backbone: DietBertBackbone,
        preprocessor: keras.layers.Layer | None = None,
        *,
        activation: str = "gelu",
        layer_norm_epsilon: float = 1e-5,
        **kwargs: Any,
    ) -> None:
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon
        super().__init__(backbone, preprocessor, **kwargs)

    def make_head(self) -> None:
        """Create the layers of the head."""
        backbone = self.backbone
        self.masked_lm_head = MaskedLMHead(
            vocabulary_size=backbone.vocabulary_size,
            token_embedding=backbone.token_embedding,
            intermediate_activation=activation_function(self.activation),
            layer_norm_epsilon=self.layer_norm_epsilon,
            kernel_initializer=bert_initializer(),
            dtype=backbone.dtype_policy,
            name="mlm_head",
        )

    def make_inputs(self) -> dict[str, Any]:
        """Return the symbolic inputs: those of the backbone, and the positions of masks."""
        positions = keras.Input(shape=(None,), dtype="int32", name="mask_positions")
        return {**self.backbone.input, "mask_positions": positions}

    def outputs_of(self, **inputs: Tensor) -> Tensor:
        """Return the logits for the inputs of the model."""
        mask_positions = inputs.pop("mask_positions")
        hidden_states = self.backbone(inputs)["sequence_output"]
        return self.masked_lm_head(hidden_states, mask_positions)

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

    def compile_arguments(self, given: Config) -> Config:
        """Return the arguments of `compile` with the defaults of the task."""
        return super().compile_arguments({"loss": token_loss(), **given})

    def fill_mask(self, texts: str | list[str], top_k: int = 5) -> list[dict[str, Any]] | list[Any]:
        """Return the most probable tokens for each `[MASK]` in a text.

        Args:
            texts: A string with at least one mask token of the tokenizer, or a list of such
                strings.
            top_k: int. Number of tokens for each mask. Defaults to `5`.

        Returns:
            For one text with one mask, a list of dictionaries, the most probable token first:
            `"token"`, its `"probability"`, and the `"text"` with this token in the place of the
            mask. For several masks, a list with such a list for each mask. For a list of texts, a
            list with the result of each text.

        Raises:
            ValueError: If the model has no preprocessor; if a text has no mask, or is too long; or
                if `top_k` is not a positive integer.

        Example:

        ```python
        best = masked_lm.fill_mask("the quick [MASK]", top_k=1)[0]
        best["token"], best["probability"], best["text"]
        ```
        """
        preprocessor = checked_preprocessor(self, "fill_mask")
        tokenizer, lengths = preprocessor.tokenizer, preprocessor.lengths
        size = tokenizer.vocabulary_size()
        validation.positive_int("top_k", top_k)
        batch = texts_of(texts, "texts")
        number_of_rows(texts=batch)
        ids = [_ids_with_masks(tokenizer, text, row, lengths[-1]) for row, text in enumerate(batch)]
        masks = [np.flatnonzero(np.array(row) == tokenizer.mask_token_id).tolist() for row in ids]
        # JAX and XLA compile for each number of masks. Powers of two need few programs. For the
        # product with one row, XLA on a CPU would copy the matrix of embeddings.
        most = max(2, 1 << (max(map(len, masks)) - 1).bit_length())
        segments = [[0] * len(row) for row in ids]
        inputs = inputs_of(ids, segments, lengths, tokenizer.pad_token_id)
        inputs["mask_positions"] = padded(masks, [most])
        logits = self.infer(inputs).astype("float32")
        probabilities = ops.convert_to_numpy(ops.softmax(logits, axis=-1))[:, :, :size]
        results = []
        for text, of_masks in zip(batch, probabilities, strict=True):
            pieces = text.split(tokenizer.mask_token)
            found = [
                _best(tokenizer, pieces, i, of_masks[i], top_k) for i in range(len(pieces) - 1)
            ]
            results.append(found[0] if len(found) == 1 else found)
        return results[0] if isinstance(texts, str) else results


def _ids_with_masks(tokenizer, text, row, length):
    """Return `[CLS]`, the tokens and masks of the text, and `[SEP]`."""
    template, count = template_of(tokenizer), text.count(tokenizer.mask_token)
    ids = [*template.start, *tokenizer.tokenize_with_masks(text), *template.end]
    if count == 0 or len(ids) > length:
        raise ValueError(
            f"Each text must contain `{tokenizer.mask_token}`, and have at most "
            f"sequence_length={length} tokens with `[CLS]` and `[SEP]`. Received: {len(ids)} "
            f"tokens and {count} masks in row {row}, {text!r:.50}"
        )
    return ids


def _best(tokenizer, pieces, mask, probabilities, top_k):
    """Return the best tokens of a mask, and the text with them."""
    before = tokenizer.mask_token.join(pieces[: mask + 1])
    after = tokenizer.mask_token.join(pieces[mask + 1 :])
    results = []
    for i in largest(probabilities, top_k):
        token = tokenizer.id_to_token(int(i))
        word, begins_word = tokenizer.split_token(token)
        text = (before if begins_word else before.rstrip()) + word + after
        results.append({"token": token, "probability": float(probabilities[i]), "text": text})
    return results
