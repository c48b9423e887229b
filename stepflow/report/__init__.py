"""Shows people: events → report, log, summary, graph, annotations. Returns text, touches nothing."""
