"""One run, put together and driven."""
