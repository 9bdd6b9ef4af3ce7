"""Auto: what to do next, by what it saves and what it costs."""
