"""Analyses of trained models: arrays from one function, a picture from another."""

from keras_diet.analysis.position_scores import plot_position_scores, position_scores

__all__ = ["plot_position_scores", "position_scores"]
