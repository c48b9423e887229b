"""What GitHub keeps of a run beside the pull request: its artifact, and the signature of its statement."""
