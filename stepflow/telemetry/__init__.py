"""A run as an OpenTelemetry trace with metrics: pure data, and its export by the official SDK."""
