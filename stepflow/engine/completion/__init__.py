"""Is it really done: validators in, `Verdict` out."""
