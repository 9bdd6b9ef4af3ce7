"""Every error fluxen raises on purpose.

FluxenError
├── QueryError        the query as written cannot run (unknown column, wrong type, bad window); raised when it is built
├── ConfigError       a setting is out of range or missing (sites, partitions, memory, checkpoint location)
├── CheckpointError   the checkpoint belongs to another query or another version
│   └── DamagedError  a file of the checkpoint is missing, truncated or altered
├── StorageError      the filesystem refused (full disk, no permission); nothing committed is lost
└── PlatformError     the machine lacks something (Java, an optional package)

A message names the thing, what was expected, what came, and what to do.
"""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DamagedError",
    "FluxenError",
    "PlatformError",
    "QueryError",
    "StorageError",
]


class FluxenError(Exception):
    """Base of every error raised on purpose. Its kinds are in `fluxen.errors`.

    Example::

        try:
            fx.aggregate(clicks, by="nobody", n=fx.count())
        except fx.FluxenError as error:
            print(error)  # names the column, what there is instead, and where
    """


class QueryError(FluxenError):
    """The query as written cannot run."""


class ConfigError(FluxenError):
    """A setting is out of range or missing."""


class CheckpointError(FluxenError):
    """The checkpoint belongs to another query or another version."""


class DamagedError(CheckpointError):
    """A file of the checkpoint is missing, truncated or altered."""


class StorageError(FluxenError):
    """The filesystem refused; nothing committed is lost."""


class PlatformError(FluxenError):
    """The machine lacks something the command needs."""
