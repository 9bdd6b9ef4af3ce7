"""Which state goes to disk, and which moves instead."""
