"""Which join tree each site runs."""
