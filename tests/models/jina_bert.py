"""JinaBERT in PyTorch, because `transformers` has no code for it.

BERT without positions, with ALiBi in the scores, and with gated feed-forward networks (Günther et
al., 2023, arXiv 2310.19923, section 4.1). The names of weights are those of
`jinaai/jina-bert-implementation`.
"""

import torch
import transformers

ALIBI_SLOPES = [2**-4, 2**-8, 2**-2]  # of three heads (Press et al., 2022, appendix A)


class JinaBertConfig(transformers.BertConfig):
    def __init__(self, position_embedding_type="alibi", feed_forward_type="geglu", **arguments):
        super().__init__(**arguments)
        self.position_embedding_type = position_embedding_type
        self.feed_forward_type = feed_forward_type


class NoPositions(torch.nn.Module):
    def forward(self, position_ids):
        return torch.zeros(1)


class GatedNetwork(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        size, inner = config.hidden_size, config.intermediate_size
        self.activation = {"geglu": torch.nn.GELU(), "reglu": torch.nn.ReLU()}[
            config.feed_forward_type
        ]
        self.gated_layers = torch.nn.Linear(size, 2 * inner, bias=False)
        self.wo = torch.nn.Linear(inner, size)
        self.layernorm = torch.nn.LayerNorm(size, eps=config.layer_norm_eps)

    def forward(self, states):
        gate, values = self.gated_layers(states).chunk(2, dim=-1)
        return self.layernorm(self.wo(self.activation(gate) * values) + states)


class JinaBertModel(transformers.BertModel):
    config_class = JinaBertConfig

    def __init__(self, config, add_pooling_layer=True):
        super().__init__(config, add_pooling_layer)
        self.embeddings.position_embeddings = NoPositions()
        for layer in self.encoder.layer:
            del layer.intermediate, layer.output
            layer.mlp = GatedNetwork(config)
            layer.feed_forward_chunk = layer.mlp.forward
        self.post_init()

    def forward(self, input_ids, attention_mask, token_type_ids, **options):
        places = torch.arange(input_ids.shape[1])
        distances = (places[:, None] - places[None]).abs()
        bias = -torch.tensor(ALIBI_SLOPES)[:, None, None] * distances
        scores = bias + torch.where(attention_mask[:, None, None] > 0, 0.0, -1e9)
        return super().forward(input_ids, scores, token_type_ids, **options)


def with_head(base):
    """Return one of BERT's classes with a head, with a JinaBERT in it."""

    class WithHead(base):
        config_class = JinaBertConfig

        def __init__(self, config):
            super().__init__(config)
            self.bert = JinaBertModel(config, self.bert.pooler is not None)
            self.post_init()

    WithHead.__name__ = base.__name__.replace("Bert", "JinaBert")
    return WithHead


JinaBertForMaskedLM = with_head(transformers.BertForMaskedLM)
JinaBertForSequenceClassification = with_head(transformers.BertForSequenceClassification)
JinaBertForTokenClassification = with_head(transformers.BertForTokenClassification)
JinaBertForQuestionAnswering = with_head(transformers.BertForQuestionAnswering)
