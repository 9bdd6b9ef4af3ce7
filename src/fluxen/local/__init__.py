"""A runtime in one process, without Java."""
