"""Change GitHub. The only code that sees the workflow token."""
