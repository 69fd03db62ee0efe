"""The DietBert model family: backbone, tasks, preprocessors and tokenizers."""
