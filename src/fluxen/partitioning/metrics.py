"""How good a partitioning function is: imbalance per resource and overall, migration, the objective, size.

Measured over every key of a domain with its true frequency, unlike the penalties in `construction`, which see tracked
keys only. Section 3.4, Equations 11 to 13.

>>> import numpy as np
>>> share = np.array([0.4, 0.3, 0.2, 0.1])
>>> round(imbalance(np.array([0, 1, 1, 0]), share, 2, Resources.of("LLL"), alpha=1.2)["b"], 3)
0.833
>>> round(migration(np.array([0, 0, 0, 0]), np.array([0, 1, 0, 1]), share, (1, 2), Resources()), 3)
0.8
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fluxen.partitioning.construction import ideal_share
from fluxen.partitioning.hashing import SiteArray
from fluxen.partitioning.resources import Resources, beta, per_site

__all__ = ["imbalance", "migration", "objective", "site_loads"]

Floats: TypeAlias = NDArray[np.float64]


def site_loads(places: SiteArray, share: Floats, sites: int, resources: Resources) -> dict[str, Floats]:
    """Load per site of s (memory), c (computation) and n (communication)."""
    growths = dict(zip("scn", resources.growths()))
    found = {growth: per_site(places, beta(growth, share), sites) for growth in dict.fromkeys(growths.values())}
    return {name: found[growth] for name, growth in growths.items()}


def imbalance(places: SiteArray, share: Floats, sites: int, resources: Resources, *, alpha: float) -> dict[str, float]:
    """Relative imbalance b_s, b_c, b_n and their geometric mean b (Equation 11); infinite when a site has nothing."""
    relative = {}
    for name, loads in site_loads(places, share, sites, resources).items():
        least = float(loads.min())
        relative[f"b_{name}"] = float(loads.max()) / least / alpha if least > 0 else float("inf")
    return {"b": float(np.prod(list(relative.values())) ** (1 / 3)), **relative}


def migration(
    before: SiteArray, after: SiteArray, share: Floats, sites: tuple[int, int], resources: Resources
) -> float:
    """Relative migration cost m (Equation 12): state that moved over the ideal for going from sites[0] to sites[1]."""
    state = beta(resources.memory, share)
    return float(state[before != after].sum() / (state.sum() * ideal_share(*sites)))


def objective(b: float, m: float) -> float:
    """b(1 + m), Equation 13; lower is better."""
    return b * (1.0 + m)
