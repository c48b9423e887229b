"""Ask the model: one request in, one turn out."""
