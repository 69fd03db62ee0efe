"""Position encodings: what each adds to the scores or to the inputs. Knows nothing of attention."""
