"""The simulated machines: what Flux section 3 fixes, as one frozen record.

`fluxen.sim.flow` moves tuples through them, `fluxen.sim.moves` state, `fluxen.sim.disk` what does not fit in memory.
The defaults are the paper's cluster and its windowed group-by: 32 sites, 45 +/- 3 us per tuple, 80-byte tuples,
connections of two 1 KB packets, a skew buffer of 2048 tuples per producer, 64 partition groups of 800 KB per site.

>>> Cluster().groups, round(Cluster().peak)
(2048, 711111)
"""

from __future__ import annotations

from dataclasses import dataclass

from fluxen.errors import ConfigError

__all__ = ["Cluster"]

MEGABIT = 1e6 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Sizes in bytes, times in seconds, bandwidths in bytes per second.

    total_groups       number of partition groups, if it is not to be `groups_per_site` times `sites`
    packet_tuples      tuples in a full packet; a producer sends a packet when it is full, or when a group is paused
    connection_tuples  room in the connection between one producer and one consumer (two 1 KB packets of 80-byte tuples)
    buffer_tuples      room in the transient skew buffer of one producer; 0 is the conventional Exchange
    state_tuple_time   processor time to take one tuple of state out of, or into, an operator
    io_slice           time a site works between two disk operations it has to do at once
    rotation_share     share of its time a site that has groups on disk spends on swapping them, at most
    """

    sites: int = 32
    groups_per_site: int = 64
    total_groups: int | None = None
    group_bytes: float = 800_000.0
    tuple_bytes: float = 80.0
    service_time: float = 45e-6
    service_sd: float = 3e-6
    producer_time: float = 0.5e-6
    packet_tuples: int = 12
    connection_tuples: float = 24.0
    buffer_tuples: float = 2048.0
    memory: float = 1e9
    pair_bandwidth: float = 250 * MEGABIT
    total_bandwidth: float = 500 * MEGABIT
    state_tuple_time: float = 0.2e-6
    disk_bandwidth: float = 20e6
    disk_seek: float = 5e-3
    io_slice: float = 0.01
    rotation_share: float = 0.5

    def __post_init__(self) -> None:
        for name in ("sites", "groups_per_site", "service_time", "tuple_bytes", "packet_tuples", "memory"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"cluster: {name} must be positive, got {getattr(self, name)}")
        for name in ("pair_bandwidth", "total_bandwidth", "disk_bandwidth", "group_bytes", "producer_time"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"cluster: {name} must be positive, got {getattr(self, name)}")
        if self.total_groups is not None and self.total_groups < 1:
            raise ConfigError(f"cluster: total_groups must be positive, got {self.total_groups}")
        if self.connection_tuples < 2 * self.packet_tuples:
            raise ConfigError(
                f"cluster: a connection must hold two packets of {self.packet_tuples} tuples, got room for "
                f"{self.connection_tuples}"
            )
        if self.buffer_tuples < 0 or not 0 < self.rotation_share < 1:
            raise ConfigError(
                "cluster: buffer_tuples must be at least 0 and rotation_share between 0 and 1, got "
                f"{self.buffer_tuples} and {self.rotation_share}"
            )

    @property
    def groups(self) -> int:
        return self.sites * self.groups_per_site if self.total_groups is None else self.total_groups

    @property
    def peak(self) -> float:
        """Tuples per second when every site works all the time."""
        return self.sites / self.service_time

    @property
    def site_queue(self) -> float:
        """Tuples that fit into all connections towards one site."""
        return self.connection_tuples * self.sites

    @property
    def buffer(self) -> float:
        """Tuples that fit into the skew buffers of all producers."""
        return self.buffer_tuples * self.sites

    def io_time(self, size: float) -> float:
        """Seconds to read or write `size` bytes in one piece."""
        return self.disk_seek + size / self.disk_bandwidth
