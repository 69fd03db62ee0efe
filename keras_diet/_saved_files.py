"""Keras finds our classes in saved files, also before their room is imported.

Keras looks classes up by name in a registry. A room registers its classes when it is imported.
`import keras_diet` imports neither Keras nor a room, so it registers a stand-in for each class as
soon as Keras is there. A stand-in imports the room, which registers the real classes instead.
"""

import importlib
import importlib.util
import sys

# The registered classes of each room. A test compares the table with what the rooms register.
CLASSES = {
    "layers": (
        "AbsolutePositionBias",
        "AlibiPositionBias",
        "BiasedMultiHeadAttention",
        "BiasedTransformerDecoder",
        "BiasedTransformerEncoder",
        "BucketedRelativePositionBias",
        "CachedPositionBias",
        "CoordinateBias",
        "DietDecoder",
        "DietEncoder",
        "DisentangledMultiHeadAttention",
        "FirePositionBias",
        "ForgettingPositionBias",
        "InputEncoding",
        "KerplePositionBias",
        "LearnedPositions",
        "LinformerMultiHeadAttention",
        "LogCPBBias",
        "PairBias",
        "PositionTable",
        "QueryRelativePositionBias",
        "RelativeMultiHeadAttention",
        "RelativePositionBias",
        "RotaryMultiHeadAttention",
        "SandwichPositionBias",
        "SegmentBias",
        "Sinusoids",
        "TransformerXLMultiHeadAttention",
        "UntiedPositionBias",
    ),
    "models": (
        "DietBertBackbone",
        "DietBertMaskedLM",
        "DietBertMaskedLMPreprocessor",
        "DietBertQuestionAnswerer",
        "DietBertQuestionAnswererPreprocessor",
        "DietBertSentencePieceTokenizer",
        "DietBertTextClassifier",
        "DietBertTextClassifierPreprocessor",
        "DietBertTextEmbedder",
        "DietBertTextEmbedderPreprocessor",
        "DietBertTextReranker",
        "DietBertTokenClassifier",
        "DietBertTokenClassifierPreprocessor",
        "DietBertTokenizer",
        "DietTransformerBackbone",
        "DietTransformerSeq2SeqLM",
        "DietTransformerSeq2SeqLMPreprocessor",
        "DietTransformerTokenizer",
        "HuggingFaceTokenizer",
    ),
    "samplers": ("BeamSearchSampler",),
    "training": (
        "AccumulatedSteps",
        "CoSENTLoss",
        "CosineSimilarityLoss",
        "InverseSquareRootDecay",
        "MarginMeanSquaredError",
        "MatryoshkaLoss",
        "MultipleNegativesRankingLoss",
        "SmoothedCategoricalCrossentropy",
        "WarmupLinearDecay",
    ),
}


def register() -> None:
    """Register a stand-in for each class, now or when Keras is imported."""
    if "keras" in sys.modules:
        _register_stand_ins()
    else:
        sys.meta_path.insert(0, _AfterKeras())


class _AfterKeras:
    """Registers the stand-ins after the first import of Keras."""

    def find_spec(self, name, path=None, target=None):
        if name != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _register_stand_ins()

        spec.loader.exec_module = exec_module
        return spec


def _register_stand_ins():
    import keras

    registry = keras.saving.get_custom_objects()
    for room, names in CLASSES.items():
        for name in names:
            registry[f"keras_diet>{name}"] = _stand_in(room, name)


def _stand_in(room, name):
    def from_config(config):
        import keras

        importlib.import_module(f"keras_diet.{room}")
        # While Keras reads a file, `get_registered_object` reads a copy with the stand-in.
        return keras.saving.get_custom_objects()[f"keras_diet>{name}"].from_config(config)

    return type(name, (), {"from_config": staticmethod(from_config)})
