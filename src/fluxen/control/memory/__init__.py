"""What stays in memory, what waits and what goes to disk."""
