"""What a BERT's tokenizer is made of, wherever it comes from."""

from pathlib import Path

from keras_hub.models import BertTokenizer

from keras_diet.models.diet_bert.from_bert import hugging_face, hugging_face_tokenizer
from keras_diet.models.diet_bert.from_bert.read_bert import load_preset


def read_tokenizer(bert):
    """Return the arguments that make a `DietBertTokenizer` the tokenizer of a BERT.

    Args:
        bert: As in `DietBertTokenizer.from_bert`.

    Raises:
        ValueError: If `bert` is something else, or has no vocabulary that fits.
    """
    if isinstance(bert, (str, Path)):
        if hugging_face.is_hugging_face_folder(bert):
            return hugging_face_tokenizer.read_tokenizer(bert)
        bert = load_preset(BertTokenizer, bert)
    if not isinstance(bert, BertTokenizer):
        raise ValueError(
            "`bert` must be a `keras_hub.models.BertTokenizer`, the address of a preset of one, or "
            f"a folder with Hugging Face's BERT. Received: bert={bert!r}"
        )
    config = bert.get_config()
    names = ("lowercase", "strip_accents", "split", "suffix_indicator", "oov_token")
    names += ("special_tokens_in_strings", "sequence_length")
    return {
        "vocabulary": bert.get_vocabulary(),
        "split_on_cjk": bert.split_on_cjk,
        **{name: config[name] for name in names},
    }
