"""The sandbox, tried out from inside before a model is asked (security.md "self-test with planted canaries")."""
