"""Tables of malformed inputs, by subject: what is sent, and parts of the error."""
