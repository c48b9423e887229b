"""What starts a run: the event on GitHub."""
