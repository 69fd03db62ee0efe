from keras_diet.models.hub.losses import TokenAccuracy  # noqa: F401
