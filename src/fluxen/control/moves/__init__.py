"""How groups move between sites."""
