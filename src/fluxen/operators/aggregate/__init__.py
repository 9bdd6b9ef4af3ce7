"""Aggregates by key."""
