"""Run what the model or a validator asks, with no secret in reach."""
