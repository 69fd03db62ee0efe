"""Position encodings: layers that add terms to attention scores or to inputs."""
