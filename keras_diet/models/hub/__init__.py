"""What every model family needs to work as a KerasHub family; knows none of them."""
