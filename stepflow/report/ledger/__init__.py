"""What a repository's runs cost and what became of their work, as figures, text, JSON and a page."""
