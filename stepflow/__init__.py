"""stepflow: runs AI agents on a repository's issues, one declared step at a time."""
