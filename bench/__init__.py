"""What stepflow costs, beside what people would use instead. `make bench` runs it, docs/performance.md shows it."""
