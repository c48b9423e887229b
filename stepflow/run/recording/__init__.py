"""What a run records so that it can be resumed, and what a resumed run reads of it."""
