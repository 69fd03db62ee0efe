"""Answers to questions, as parts of texts, for any model family."""
