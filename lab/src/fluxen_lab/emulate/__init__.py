"""Slow sites and distant disks, for experiments."""
