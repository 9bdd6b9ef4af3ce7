"""One site's share of one batch."""
