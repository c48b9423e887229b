"""Where the action begins: environment and event in, exit code out."""
