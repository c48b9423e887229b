"""What the checkout left behind: found, taken away while tools live in it, and given back (security.md "Start-up")."""
