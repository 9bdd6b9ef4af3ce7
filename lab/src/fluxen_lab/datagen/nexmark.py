"""Persons, auctions and bids of an online auction house, as the public Nexmark suite describes them.

Of 50 events one is a person who registers, three are auctions that open and 46 are bids. Half of the bids go to a hot
auction, three quarters of them come from a hot bidder, and three quarters of the auctions have a hot seller; who is hot
changes as new ones come. The queries over these streams are in benchmarks/nexmark/.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fluxen_lab.datagen.streams import START_US, Ints, hex_strings, write_tables
from fluxen_lab.datagen.workloads import Workload

__all__ = ["NEXMARK", "STREAMS", "Nexmark"]

STREAMS = ("person", "auction", "bid")
_CYCLE, _PERSONS, _AUCTIONS = 50, 1, 3
_FIRST_ID, _FIRST_CATEGORY, _CATEGORIES = 1_000, 10, 5
_ACTIVE_PEOPLE, _IN_FLIGHT, _LEAD = 1_000, 100, 10
"""persons who do something, auctions that get bids, and how far these may be ahead of what has been seen"""
_HOT_STEP = 100
"""every hundredth person and auction is hot until the next one comes"""
_HOT_AUCTION, _HOT_BIDDER, _HOT_SELLER, _HOT_CHANNEL = 2, 4, 4, 2
"""one in so many is not hot"""
_CHANNELS = 10_000
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent")
_FIRST = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_EXTRA = {"person": 100, "auction": 300, "bid": 40}
"""characters of the column that pads a row to about the size it has in the suite"""
_SECOND = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Nexmark(Workload):
    """So many events at a rate, one file per stream and micro-batch; no two events have the same time.

    With `disorder_us` events, all or the share `disordered` of them, arrive up to that much after others of their time;
    with `hot` this share of all bids goes to the first auction, over and above what the suite's own hot ones get.
    """

    events: int
    rate: int = 10_000
    seed: int = 1
    disorder_us: int = 0
    disordered: float = 1.0
    hot: float = 0.0

    @property
    def rows(self) -> int:
        return self.events

    @property
    def batch_rows(self) -> int:
        return self.events // self.batches

    def scaled(self, scale: float) -> Nexmark:
        """The same rate for a shorter time; whole cycles per batch."""
        cycles = max(2, round(self.events * scale / self.batches / _CYCLE))
        return replace(self, events=cycles * _CYCLE * self.batches)

    def counts(self) -> dict[str, int]:
        """Rows of each stream."""
        cycles = self.events // _CYCLE
        return {"person": cycles * _PERSONS, "auction": cycles * _AUCTIONS, "bid": cycles * _bids()}

    def write(self, directory: Path) -> None:
        for name in STREAMS:
            write_tables(self.tables(name), directory / name)

    def tables(self, name: str) -> Iterator[pa.Table]:
        """A stream's rows, one table per micro-batch, in the order in which they arrive."""
        events = _events_of(name, self.events)
        table = {"person": self._persons, "auction": self._auctions, "bid": self._bids}[name](events)
        position = self._arrivals()[events]
        order = np.argsort(position)
        table, position = table.take(pa.array(order)), position[order]
        cuts = np.searchsorted(position, np.arange(self.batches + 1) * self.batch_rows)
        for start, end in pairwise(cuts):
            yield table.slice(start, end - start)

    def _arrivals(self) -> Ints:
        """For every event, when it arrives among all of them."""
        number = np.arange(self.events, dtype=np.int64)
        if not self.disorder_us:
            return number
        rng = self._rng("arrival")
        late = rng.integers(0, self.disorder_us + 1, self.events)
        late[rng.random(self.events) >= self.disordered] = 0
        found = np.empty_like(number)
        found[np.argsort(self._times(number) + late, kind="stable")] = number
        return found

    def _rng(self, what: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, *what.encode()])

    def _times(self, events: Ints) -> Ints:
        return START_US + events * (_SECOND // self.rate)

    # ---- rows

    def _persons(self, events: Ints) -> pa.Table:
        rng, size = self._rng("person"), len(events)
        first, last = _drawn(rng, _FIRST, size), _drawn(rng, _LAST, size)
        card = pc.utf8_slice_codeunits(hex_strings(rng, size, 16), 0, 16)
        return pa.table(
            {
                "id": pa.array(_last_person(events) + _FIRST_ID),
                "name": pc.binary_join_element_wise(first, last, " "),
                "emailAddress": pc.binary_join_element_wise(pc.utf8_lower(last), _text(events), "@nexmark.com", ""),
                "creditCard": card,
                "city": _drawn(rng, _CITIES, size),
                "state": _drawn(rng, _STATES, size),
                "dateTime": _stamps(self._times(events)),
                "extra": hex_strings(rng, size, _EXTRA["person"]),
            }
        )

    def _auctions(self, events: Ints) -> pa.Table:
        rng, size = self._rng("auction"), len(events)
        known = _last_person(events)
        hot = rng.integers(0, _HOT_SELLER, size) > 0
        seller = np.where(hot, known // _HOT_STEP * _HOT_STEP, _next_person(rng, known))
        initial, times = _prices(rng, size), self._times(events)
        # an auction stays open, on average, until as many others have opened as get bids at a time
        horizon = _IN_FLIGHT * _CYCLE // _AUCTIONS * (_SECOND // self.rate)
        return pa.table(
            {
                "id": pa.array(_last_auction(events) + _FIRST_ID),
                "itemName": hex_strings(rng, size, 20),
                "description": hex_strings(rng, size, 100),
                "initialBid": pa.array(initial),
                "reserve": pa.array(initial + _prices(rng, size)),
                "dateTime": _stamps(times),
                "expires": _stamps(times + 1 + rng.integers(0, 2 * horizon, size)),
                "seller": pa.array(seller + _FIRST_ID),
                "category": pa.array(_FIRST_CATEGORY + rng.integers(0, _CATEGORIES, size)),
                "extra": hex_strings(rng, size, _EXTRA["auction"]),
            }
        )

    def _bids(self, events: Ints) -> pa.Table:
        rng, size = self._rng("bid"), len(events)
        opened, known = _last_auction(events), _last_person(events)
        hot = rng.integers(0, _HOT_AUCTION, size) > 0
        auction = np.where(hot, opened // _HOT_STEP * _HOT_STEP, _next_auction(rng, opened))
        auction[rng.random(size) < self.hot] = 0
        eager = rng.integers(0, _HOT_BIDDER, size) > 0
        bidder = np.where(eager, known // _HOT_STEP * _HOT_STEP + 1, _next_person(rng, known))
        names, urls = _channels(self._rng("channel"))
        popular = rng.integers(0, _HOT_CHANNEL, size) > 0
        others = len(_HOT_CHANNELS) + rng.integers(0, _CHANNELS, size)
        channel = pa.array(np.where(popular, rng.integers(0, len(_HOT_CHANNELS), size), others))
        return pa.table(
            {
                "auction": pa.array(auction + _FIRST_ID),
                "bidder": pa.array(bidder + _FIRST_ID),
                "price": pa.array(_prices(rng, size)),
                "channel": names.take(channel),
                "url": urls.take(channel),
                "dateTime": _stamps(self._times(events)),
                "extra": hex_strings(rng, size, _EXTRA["bid"]),
            }
        )


def _bids() -> int:
    return _CYCLE - _PERSONS - _AUCTIONS


def _events_of(name: str, events: int) -> Ints:
    """The numbers of the events that belong to a stream."""
    number = np.arange(events, dtype=np.int64)
    place = number % _CYCLE
    first = {"person": 0, "auction": _PERSONS, "bid": _PERSONS + _AUCTIONS}[name]
    last = {"person": _PERSONS, "auction": _PERSONS + _AUCTIONS, "bid": _CYCLE}[name]
    return number[(place >= first) & (place < last)]


def _last_person(events: Ints) -> Ints:
    """The newest person at an event, counted from zero."""
    return events // _CYCLE


def _last_auction(events: Ints) -> Ints:
    """The newest auction at an event, counted from zero; the first one before there is any."""
    place = np.clip(events % _CYCLE - _PERSONS, -1, _AUCTIONS - 1)
    found: Ints = np.maximum(events // _CYCLE * _AUCTIONS + place, 0)
    return found


def _next_person(rng: np.random.Generator, known: Ints) -> Ints:
    """One of those who have registered lately, or soon will."""
    active = np.minimum(known + 1, _ACTIVE_PEOPLE)
    found: Ints = known + 1 - active + rng.integers(0, active + _LEAD)
    return found


def _next_auction(rng: np.random.Generator, opened: Ints) -> Ints:
    """One of those that have opened lately, or soon will."""
    oldest = np.maximum(opened - _IN_FLIGHT, 0)
    found: Ints = oldest + rng.integers(0, opened - oldest + 1 + _LEAD)
    return found


def _prices(rng: np.random.Generator, size: int) -> Ints:
    """Cents, between one and a million of the currency, spread evenly over the magnitudes."""
    return np.round(10.0 ** (rng.random(size) * 6) * 100).astype(np.int64)


def _channels(rng: np.random.Generator) -> tuple[pa.Array, pa.Array]:
    """Names and addresses: the hot ones, then those with a number, of whose addresses nine in ten name it."""
    count = len(_HOT_CHANNELS) + _CHANNELS
    names = pa.array([*_HOT_CHANNELS, *(f"channel-{number}" for number in range(_CHANNELS))])
    parts = [hex_strings(rng, count, 6).to_pylist() for _ in range(3)]
    named: npt.NDArray[np.bool_] = rng.integers(0, 10, count) > 0
    named[: len(_HOT_CHANNELS)] = False
    urls = [
        f"https://www.nexmark.com/{one}/{two}/{three}/item.htm?query=1{f'&channel_id={at}' if own else ''}"
        for at, (one, two, three, own) in enumerate(zip(*parts, named))
    ]
    return names, pa.array(urls)


def _drawn(rng: np.random.Generator, words: tuple[str, ...], size: int) -> pa.Array:
    return pa.array(words).take(pa.array(rng.integers(0, len(words), size)))


def _text(numbers: Ints) -> pa.Array:
    return pc.cast(pa.array(numbers), pa.string())


def _stamps(micros: Ints) -> pa.Array:
    return pa.array(micros, type=pa.timestamp("us", tz="UTC"))


NEXMARK = Nexmark(name="nexmark", streams=(), batches=10, events=1_000_000)
