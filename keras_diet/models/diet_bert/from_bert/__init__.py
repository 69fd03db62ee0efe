"""From a trained BERT to DIET: reading checkpoints, and scores as parameters."""
