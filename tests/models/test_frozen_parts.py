"""What is frozen before a model is built around it stays frozen, on every backend."""

import pytest

from keras_diet.models import DietBertMaskedLM
from tests.models.tiny import tiny_backbone

pytestmark = pytest.mark.any_backend


def test_frozen_backbone_stays_frozen():
    backbone = tiny_backbone()
    backbone.trainable = False
    masked_lm = DietBertMaskedLM(backbone)
    paths = [variable.path for variable in masked_lm.trainable_variables]
    assert len(paths) == 5
    assert all("mlm_head" in path for path in paths)


def test_frozen_layer_stays_frozen():
    backbone = tiny_backbone()
    backbone.pooled_dense.trainable = False
    masked_lm = DietBertMaskedLM(backbone)
    assert len(backbone.trainable_variables) == len(backbone.weights) - 2
    assert not any("pooled" in variable.path for variable in masked_lm.trainable_variables)


def test_trainable_can_be_given():
    assert tiny_backbone(trainable=False).trainable_variables == []
    assert DietBertMaskedLM(tiny_backbone(), trainable=False).trainable_variables == []
