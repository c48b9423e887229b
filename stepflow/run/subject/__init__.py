"""What a run is about: the issue, and the pull request that it follows up."""
