"""Where results go: what `format(...)` and `toTable(...)` mean. `registry` has the sinks by name."""
