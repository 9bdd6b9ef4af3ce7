"""How load follows frequency, how much imbalance is allowed, and from which frequency on a key is tracked.

`Resources` says how memory, computation and communication grow with a key's frequency (constant, linear, quadratic);
`Frequencies` holds what a sketch of `fluxen.sketches` knows about a stream; `tracking_threshold` is delta of
Equation 17 with the correction for quadratic resources; `utility` combines balance and migration penalties.

Computation is the sum of beta_c(f) over a site's keys. Equation 3 multiplies by f once more, but the paper's toy
example and its results for linear computation only come out without that factor. Sections 3.1, 4.1.3, 4.3.

>>> lcl = Resources.of("LCL")
>>> round(tolerance(alpha=1.2, sites=10), 4)
0.1765
>>> round(tracking_threshold(lcl, alpha=1.2, sigma=0.1, sites=10, domain=10**6), 6)
0.001765
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from fluxen.errors import ConfigError
from fluxen.partitioning.hashing import KeyArray

__all__ = [
    "Frequencies",
    "Growth",
    "Loads",
    "Resources",
    "Utility",
    "beta",
    "per_site",
    "tolerance",
    "tracking_threshold",
    "utility",
]

Growth: TypeAlias = Literal["constant", "linear", "quadratic"]
Utility: TypeAlias = Literal["A", "APM", "APLM", "ATM", "ATLM"]
Floats: TypeAlias = NDArray[np.float64]

_LETTERS: dict[str, Growth] = {"C": "constant", "L": "linear", "Q": "quadratic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Growth of memory (s), computation (c) and communication (n) with a key's frequency."""

    memory: Growth = "linear"
    computation: Growth = "constant"
    communication: Growth = "linear"

    @classmethod
    def of(cls, letters: str) -> Resources:
        """From the paper's notation: "LCL" is linear memory, constant computation, linear communication."""
        if len(letters) != 3 or any(letter not in _LETTERS for letter in letters):
            raise ConfigError(f"resources {letters!r}: expected three of the letters C, L, Q, such as 'LCL'")
        memory, computation, communication = (_LETTERS[letter] for letter in letters)
        return cls(memory=memory, computation=computation, communication=communication)

    def growths(self) -> tuple[Growth, Growth, Growth]:
        """Growth per resource in the order s, c, n."""
        return self.memory, self.computation, self.communication

    def balanced(self) -> list[tuple[Growth, float]]:
        """The growths worth balancing, each with its weight in the geometric mean.

        Constant ones are left out (Section 4.4): keys without an explicit mapping balance them for free.
        """
        counted = [growth for growth in self.growths() if growth != "constant"] or ["linear"]
        return [(growth, counted.count(growth) / len(counted)) for growth in dict.fromkeys(counted)]


def per_site(places: NDArray[np.int32], load: Floats, sites: int) -> Floats:
    """Sum of key loads on each site."""
    return np.bincount(places, weights=load, minlength=sites).astype(np.float64)


def beta(growth: Growth, frequency: Floats) -> Floats:
    """The resource function: load of a key with this frequency."""
    if growth == "constant":
        return np.ones_like(frequency)
    return frequency if growth == "linear" else frequency * frequency


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loads:
    """What keys cost as measured in a running query, in place of the resource functions of their frequencies.

    resources  one array of key loads per resource to balance
    base       per resource the load each site has besides these keys, which stays where it is
    alphas     per resource the tolerated ratio between the most and the least loaded site
    state      bytes of state per key: what migrating it costs
    """

    resources: tuple[Floats, ...]
    base: tuple[Floats, ...]
    alphas: tuple[float, ...]
    state: Floats

    def only(self, keys: NDArray[np.bool_] | NDArray[np.intp]) -> Loads:
        """Those of some of the keys, in this order."""
        resources = tuple(loads[keys] for loads in self.resources)
        return Loads(resources=resources, base=self.base, alphas=self.alphas, state=self.state[keys])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frequencies:
    """Relative frequencies of the tracked keys of a stream: ``keys`` ascend, ``share`` is in 0..1.

    ``domain`` is the number of different keys, as well as it is known; only quadratic resources need it. With ``loads``
    all keys are placed explicitly and their loads are those, not functions of their frequencies.
    """

    keys: KeyArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    share: Floats = field(default_factory=lambda: np.empty(0, dtype=np.float64))
    domain: int = 1_000_000
    loads: Loads | None = None

    def __post_init__(self) -> None:
        if len(self.keys) != len(self.share) or (len(self.keys) > 1 and bool((self.keys[1:] <= self.keys[:-1]).any())):
            raise ConfigError("frequencies: keys must ascend without repeats and have one share each")
        if len(self.share) and not (float(self.share.min()) >= 0.0 and float(self.share.sum()) <= 1.0 + 1e-9):
            raise ConfigError("frequencies: shares must not be negative and must sum to at most 1")

    @classmethod
    def counted(
        cls, keys: KeyArray, counts: NDArray[np.int64], total: int, *, domain: int | None = None
    ) -> Frequencies:
        """From counts in any order, out of ``total`` rows."""
        order = np.argsort(keys, kind="stable")
        share = np.asarray(counts)[order] / max(1, total)
        return cls(keys=np.asarray(keys, dtype=np.int64)[order], share=share, domain=domain or max(1, len(order)))

    def of(self, keys: KeyArray) -> Floats:
        """Share of each key, 0 where it is not tracked."""
        if not len(self.keys):
            return np.zeros(len(keys))
        index = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[index] == keys, self.share[index], 0.0)

    def at_least(self, threshold: float) -> Frequencies:
        """Only the keys whose share reaches the threshold."""
        keep = self.share >= threshold
        loads = None if self.loads is None else self.loads.only(keep)
        return Frequencies(keys=self.keys[keep], share=self.share[keep], domain=self.domain, loads=loads)


def tolerance(*, alpha: float, sites: int) -> float:
    """theta of Equation 15: how far a site's load may be from the mean, relative to it, when max/min is alpha."""
    if alpha < 1.0:
        raise ConfigError(f"alpha is {alpha}: the tolerated max/min load ratio is at least 1")
    return alpha - 1.0 if sites == 1 else (alpha - 1.0) / (1.0 + alpha / (sites - 1))


def tracking_threshold(resources: Resources, *, alpha: float, sigma: float, sites: int, domain: int) -> float:
    """delta of Equation 17: a key below it cannot unbalance a site by more than sigma of what is allowed."""
    if not 0.0 < sigma <= 1.0:
        raise ConfigError(f"sigma is {sigma}: expected more than 0 and at most 1")
    theta = tolerance(alpha=alpha, sites=sites)
    delta = {
        "constant": 1.0,
        "linear": sigma * theta / sites,
        "quadratic": float(np.sqrt(sigma * theta / (domain * sites))),
    }
    return min(delta[growth] for growth in resources.growths())


def heavy(frequencies: Frequencies, resources: Resources, *, alpha: float, sigma: float, sites: int) -> Frequencies:
    """The keys to map explicitly: at least delta, and for quadratic resources at least the corrected delta.

    Equation 17 assumes the flattest distribution for quadratic resources, which asks for far too many keys. Once the
    frequent keys are known the mean load can be estimated from them, and the threshold rises (end of Section 4.1.3).
    """
    if frequencies.loads is not None:
        return frequencies
    delta = tracking_threshold(resources, alpha=alpha, sigma=sigma, sites=sites, domain=frequencies.domain)
    found = frequencies.at_least(delta)
    if "quadratic" not in resources.growths():
        return found
    rest = max(1, frequencies.domain - len(found.keys))
    untracked = max(0.0, 1.0 - float(found.share.sum()))
    total = float(beta("quadratic", found.share).sum()) + rest * (untracked / rest) ** 2
    raised = float(np.sqrt(sigma * tolerance(alpha=alpha, sites=sites) * total / sites))
    linear = tracking_threshold(Resources(), alpha=alpha, sigma=sigma, sites=sites, domain=frequencies.domain)
    return found.at_least(max(delta, min(raised, linear)))


def utility(kind: Utility, balance: Floats, migration: Floats) -> Floats:
    """U of Section 4.3; lower is better."""
    if kind == "A":
        return balance
    if kind == "APM":
        return balance + migration
    if kind == "APLM":
        return balance + np.log1p(migration)
    if kind == "ATM":
        return balance * (1.0 + migration)
    if kind == "ATLM":
        return balance * (1.0 + np.log1p(migration))
    raise ConfigError(f"utility {kind!r}: expected one of {', '.join(get_args(Utility))}")
