"""What runs, batches, evals and the ledger come to, as facts for people and programs."""
