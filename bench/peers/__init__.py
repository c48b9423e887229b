"""The same flow in what people would use instead. Each is a program of its own in the peers' environment."""
