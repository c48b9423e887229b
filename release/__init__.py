"""What the release workflow does beyond building. Standard library only: nothing is installed for it."""
