"""The subcommands `fluxen bench` and `fluxen figure`."""
