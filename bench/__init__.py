"""What stepflow costs, compared with what people would use instead. `make bench` runs it, bench/README.md shows it."""
