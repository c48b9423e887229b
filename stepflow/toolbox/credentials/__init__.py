"""What the checkout left behind: found, taken away while tools live in it, and given back (security.md "Start-up").

Takes: the checkout, the runner's temporary folder. Gives: the secrets, for the redactor; a context without them.
May touch: git's files in the checkout, the files that these include, and the runner's `git-credentials-*`.
"""

from stepflow.toolbox.credentials.away import Away, Findings, find_credentials

__all__ = ["Away", "Findings", "find_credentials"]
