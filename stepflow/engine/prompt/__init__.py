"""What do we ask: step and state in, text out."""
