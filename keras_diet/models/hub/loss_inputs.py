from keras_diet.models.hub.losses import warn_if_loss_does_not_fit  # noqa: F401
