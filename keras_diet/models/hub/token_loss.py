from keras_diet.models.hub.losses import token_loss  # noqa: F401
