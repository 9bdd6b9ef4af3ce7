"""Tuples on their way: producers, skew buffer, connections, consumers (Flux sections 2.3, 3 and 4).

A time-stepped fluid model. Sites are interchangeable as producers (every one generates the same mixture), so all
producers are one aggregate producer, all connections towards a site one queue and all skew buffers one pool; what is
left is a handful of arrays over sites and groups. Which tuples are produced is sampled, so short collections see the
noise they would see in reality. State transfer is in `fluxen.sim.moves`, disks are in `fluxen.sim.disk`.

Head-of-line blocking follows from one equation. With `free` room in a site's connections, `held` tuples waiting for it
in the buffer and a mixture `x`, the producer gets `a` tuples off in a step, the largest `a` with

    sum over sites of max(0, held + a x - free)  +  what waits for groups under way  <=  size of the buffer.

Without a buffer that is the fullest connection dictating everybody's pace; with one, the pace holds until the buffer is
full of tuples for the slow site.

>>> largest_amount(held=np.zeros(2), free=np.array([10.0, 1.0]), mixture=np.array([0.5, 0.5]), stalled=0.0,
...                stalled_share=0.0, buffer=0.0, ceiling=1e6)
2.0
"""

from __future__ import annotations

import numpy as np

from fluxen.policies.base import Bools, Floats, Ints
from fluxen.sim.cluster import Cluster

__all__ = ["Flow", "largest_amount"]


def largest_amount(
    *, held: Floats, free: Floats, mixture: Floats, stalled: float, stalled_share: float, buffer: float, ceiling: float
) -> float:
    """How many tuples producers get off before the buffer is full (Newton on a convex piecewise linear function)."""
    amount = ceiling
    base = held - free
    for _ in range(len(held) + 2):
        over = base + amount * mixture
        wet = over > 0
        excess = float(over[wet].sum()) + stalled + amount * stalled_share - buffer
        slope = float(mixture[wet].sum()) + stalled_share
        if excess <= 1e-9 * (1 + buffer) or slope <= 0:
            break
        amount -= excess / slope
        if amount <= 0:
            return 0.0
    return amount


class Flow:
    """The tuples of one stage between generation and processing."""

    def __init__(self, cluster: Cluster, shares: Floats, placement: Ints, rng: np.random.Generator) -> None:
        groups, sites = len(placement), cluster.sites
        self.cluster, self.rng = cluster, rng
        self.site: Ints = placement.copy()
        self.buffered: Floats = np.zeros(groups)
        self.open: Floats = np.zeros(groups)  # in packets that are not full yet
        self.queued: Floats = np.zeros(groups)  # in packets that are
        self.stalled: Bools = np.zeros(groups, dtype=np.bool_)
        self.on_disk: Bools = np.zeros(groups, dtype=np.bool_)
        self.spool: Floats = np.zeros(groups)  # tuples that arrived for a group on disk and wait for its return
        self.spool_since: Floats = np.zeros(groups)  # sum of their arrival times
        self.debt: Floats = np.zeros(sites)  # seconds of other work a site has to do first
        self.in_queue: Floats = np.zeros(sites)
        self._in_open: Floats = np.zeros(sites)
        self._fill: Floats = np.zeros((sites, sites)) if cluster.packet_tuples > 1 else np.zeros((0, sites))
        self._held: Floats = np.zeros(sites)
        # accumulated until the coordinator asks
        self.rows: Floats = np.zeros(groups)
        self.busy: Floats = np.zeros(sites)
        self.idle: Floats = np.zeros(sites)
        # accumulated for the result
        self.produced = 0.0
        self.processed = 0.0
        self.latency = 0.0
        self._drawn: Floats = np.zeros(groups)  # tuples decided on and not produced yet
        self.set_mixture(shares)
        self._last_amount = cluster.peak * 1e-3
        self._level: Floats = np.ones(sites)  # of the last round robin
        self._warm_up()

    def set_mixture(self, shares: Floats) -> None:
        """From now on producers draw groups with these probabilities."""
        self.shares = shares / shares.sum()
        slots = 1 << max(18, int(np.ceil(np.log2(len(shares)))) + 5)
        counts = np.floor(self.shares * slots).astype(np.int64)
        rest = np.argsort(-(self.shares * slots - counts), kind="stable")[: slots - int(counts.sum())]
        counts[rest] += 1
        self._table = np.repeat(np.arange(len(shares)), counts)

    def _warm_up(self) -> None:
        """Start with full connections and buffers, as the paper does."""
        by_site = np.bincount(self.site, weights=self.shares, minlength=self.cluster.sites)
        with np.errstate(divide="ignore"):
            queue = float(np.min(np.where(by_site > 0, self.cluster.site_queue / by_site, np.inf)))
        self.queued = self.shares * queue
        self.buffered = self.shares * self.cluster.buffer
        self.produced = float(self.queued.sum() + self.buffered.sum())
        self.regroup()

    def regroup(self) -> None:
        """Recompute the per-site sums; needed after the routing table or the set of stalled groups changed."""
        sites = self.cluster.sites
        self.in_queue = np.bincount(self.site, weights=self.queued, minlength=sites).astype(np.float64)
        self._in_open = np.bincount(self.site, weights=self.open, minlength=sites).astype(np.float64)
        waiting = np.where(self.stalled, 0.0, self.buffered) if self.stalled.any() else self.buffered
        self._held = np.bincount(self.site, weights=waiting, minlength=sites).astype(np.float64)

    def step(self, now: float, dt: float, share: Floats, running: Bools) -> Floats:
        """One step: consume, then produce. Returns the tuples each site took from its connections."""
        noise = self.rng.standard_normal(self.cluster.sites)
        tuple_time = self._tuple_time(dt, share, noise)
        time = np.where(running, dt, 0.0)
        pay = np.minimum(self.debt, time)
        self.debt -= pay
        time -= pay
        if self.on_disk.any() or self.spool.any():
            taken, used = self._consume_with_disk(now, time, tuple_time)
        else:
            taken, used = self._consume(time, tuple_time)
        used += pay
        self.busy += np.where(running, used, dt)
        self.idle += np.where(running, dt - used, 0.0)
        self._produce(dt)
        return taken

    def _tuple_time(self, dt: float, share: Floats, noise: Floats) -> Floats:
        mean = self.cluster.service_time
        per_step = max(1.0, dt / mean)
        mean_of_step = mean + noise * (self.cluster.service_sd / np.sqrt(per_step))
        return np.asarray(np.maximum(mean_of_step, 0.1 * mean) / share, dtype=np.float64)

    def _consume(self, time: Floats, tuple_time: Floats) -> tuple[Floats, Floats]:
        taken = np.minimum(self.in_queue, time / tuple_time)
        part = np.divide(taken, self.in_queue, out=np.zeros(len(taken)), where=self.in_queue > 0)
        rows = self.queued * part[self.site]
        self.queued -= rows
        self.rows += rows
        self.in_queue -= taken
        self.processed += float(taken.sum())
        self.latency += float(taken @ tuple_time)
        return taken, taken * tuple_time

    def _consume_with_disk(self, now: float, time: Floats, tuple_time: Floats) -> tuple[Floats, Floats]:
        """As `_consume`, but input for groups on disk is spooled and returned groups work off their spool first."""
        site, sites = self.site, self.cluster.sites
        spooling = self.cluster.tuple_bytes / self.cluster.disk_bandwidth  # seconds per tuple written or read
        back = np.where(self.on_disk, 0.0, self.spool)
        cost = np.where(self.on_disk, spooling, tuple_time[site])
        work = np.bincount(site, weights=self.queued * cost + back * (cost + spooling), minlength=sites)
        part = np.minimum(1.0, np.divide(time, work, out=np.zeros(sites), where=work > 0))
        take = (self.queued + back) * part[site]
        from_spool = np.minimum(back, take)
        from_queue = take - from_spool
        since = np.divide(self.spool_since, self.spool, out=np.zeros(len(site)), where=self.spool > 0)
        self.spool -= from_spool
        self.spool_since -= from_spool * since
        self.queued -= from_queue
        gone = self.spool < 1e-6
        self.spool[gone] = self.spool_since[gone] = 0.0
        to_disk = np.where(self.on_disk, from_queue, 0.0)
        self.spool += to_disk
        self.spool_since += to_disk * now
        rows = take - to_disk
        self.rows += rows
        self.processed += float(rows.sum())
        self.latency += float((rows * tuple_time[site]).sum() + (from_spool * (now - since)).sum())
        taken = np.bincount(site, weights=from_queue, minlength=sites).astype(np.float64)
        self.in_queue = np.maximum(self.in_queue - taken, 0.0)
        return taken, part * work

    def _produce(self, dt: float) -> None:
        self._draw_more()
        stalled = np.flatnonzero(self.stalled)
        routed = self._drawn
        if len(stalled):
            routed = routed.copy()
            routed[stalled] = 0.0
        mixture: Floats = np.bincount(self.site, weights=routed, minlength=self.cluster.sites).astype(np.float64)
        free = np.maximum(self.cluster.site_queue - self.in_queue - self._in_open, 0.0)
        pending = float(self._drawn.sum())
        part = largest_amount(
            held=self._held,
            free=free,
            mixture=mixture,
            stalled=float(self.buffered[stalled].sum()),
            stalled_share=float(self._drawn[stalled].sum()),
            buffer=self.cluster.buffer,
            ceiling=min(1.0, self.cluster.sites * dt / self.cluster.producer_time / pending),
        )
        self._last_amount = part * pending
        self.produced += part * pending
        total = self._held + part * mixture
        sent = np.minimum(total, free)
        self.buffered += part * self._drawn
        self._drawn *= 1 - part
        waiting = self.buffered
        if len(stalled):
            waiting = waiting.copy()
            waiting[stalled] = 0.0
        leaving = self._round_robin(waiting, total, sent)
        self.buffered -= leaving
        self._held = total - sent
        self._pack(leaving, sent)

    def _pack(self, leaving: Floats, sent: Floats) -> None:
        """Fill packets; full ones reach their site. Each connection has an open packet of its own, so a site with
        little input gets it in bursts."""
        size = self.cluster.packet_tuples
        if size <= 1:
            self.queued += leaving
            self.in_queue += sent
            return
        self.open += leaving
        self._in_open += sent
        sites = self.cluster.sites
        whole = np.floor(sent + self.rng.random(sites)).astype(np.int64)  # tuples, rounded at random
        to = np.repeat(np.arange(sites), whole)
        pairs = self.rng.integers(0, sites, size=len(to)) * sites + to
        self._fill += np.bincount(pairs, minlength=sites * sites).reshape(sites, sites)
        full = np.floor_divide(self._fill, size)
        self._fill -= full * size
        flushed = np.minimum(full.sum(axis=0) * size, self._in_open)
        part = np.divide(flushed, self._in_open, out=np.zeros(sites), where=self._in_open > 0)
        packed = self.open * part[self.site]
        self.open -= packed
        self.queued += packed
        self._in_open -= flushed
        self.in_queue += flushed

    def flush(self, site: int) -> None:
        """Send the open packets towards a site: a pause is acknowledged on the same ordered connections."""
        here = self.site == site
        self.queued[here] += self.open[here]
        self.open[here] = 0.0
        if len(self._fill):
            self._fill[:, site] = 0.0

    def _round_robin(self, waiting: Floats, total: Floats, sent: Floats) -> Floats:
        """What leaves the buffer: a site's groups take turns, so a small one is not stuck behind a popular one.

        Per site that is a level `l` with sum of min(waiting, l) = sent; two Newton steps from the last step's level.
        """
        short = total > sent
        if not short.any():
            return waiting
        rows = np.flatnonzero(short[self.site])  # everything leaves for the other sites
        leaving = waiting.copy()
        leaving[rows] = self._take_turns(waiting[rows], self.site[rows], total, sent)
        self._level[~short] = 1.0
        return leaving

    def _take_turns(self, waiting: Floats, site: Ints, total: Floats, sent: Floats) -> Floats:
        sites, level = self.cluster.sites, self._level
        for _ in range(2):
            at = level[site]
            below = np.bincount(site, weights=np.minimum(waiting, at), minlength=sites)
            above = np.bincount(site[waiting > at], minlength=sites)
            nearer = level + (sent - below) / np.maximum(above, 1)
            level = np.maximum(np.where(above > 0, nearer, np.where(below > sent, level / 2, level)), 1e-6)
        self._level = level
        capped = np.minimum(waiting, level[site])
        below = np.bincount(site, weights=capped, minlength=sites)
        # the level is approximate: correct to what really leaves, between nothing and all that waits
        down = np.minimum(1.0, np.divide(sent, below, out=np.ones(sites), where=below > 0))
        more = np.divide(sent - below, total - below, out=np.zeros(sites), where=total - below > 1e-9)
        up = np.clip(more, 0.0, 1.0)
        return np.asarray(capped * down[site] + (waiting - capped) * up[site], dtype=np.float64)

    def _draw_more(self) -> None:
        """Keep about two steps' worth of tuples drawn. What a step does not get off stays first in line: dropping it
        would favour draws with few tuples for the slow site."""
        wanted = max(64, int(2 * self._last_amount)) - int(self._drawn.sum())
        if wanted <= 0:
            return
        groups = len(self.shares)
        if wanted > 4 * groups:
            self._drawn += self.rng.poisson(self.shares * wanted)
        else:
            picks = self._table[self.rng.integers(0, len(self._table), size=wanted)]
            self._drawn += np.bincount(picks, minlength=groups)

    def settle(self, group: int) -> None:
        """Process what is left of a group in the connections; its site owes the time for it."""
        left = float(self.queued[group])
        site = int(self.site[group])
        self.queued[group] = 0.0
        self.in_queue[site] = max(0.0, self.in_queue[site] - left)
        self.debt[site] += left * self.cluster.service_time
        self.rows[group] += left
        self.processed += left
        self.latency += left * self.cluster.service_time
