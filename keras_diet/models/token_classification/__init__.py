"""Classes of the words of sentences, for any model family."""
