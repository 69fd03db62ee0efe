"""From a trained BERT to DIET: `DietBertBackbone.from_bert` and `DietBertTokenizer.from_bert`."""
