"""What stepflow costs, beside what people would use instead. `make bench` runs it, docs/performance.md shows it.

Takes: a run environment of stepflow and one of its peers. Gives: figures, a table and a plot.
May touch: build/bench, docs/performance.md and its pictures, loopback ports, processes that it starts.
"""
