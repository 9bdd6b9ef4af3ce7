"""What the paper says about Figures 6 to 8, judged on the rows that `balance` measured. Section 5.3."""

from __future__ import annotations

import numpy as np

from fluxen_lab.figures.figure import Claim, Row
from fluxen_lab.figures.gedik.trial import CONSTRUCTIONS, mean, values_of

__all__ = ["domain", "sites", "utility"]

LETTERS = ("LCL", "LLL", "LQL")


def sites(rows: list[Row]) -> list[Claim]:
    """Figure 6."""
    numbers = [int(n) for n in values_of(rows, "sites")]
    last = numbers[-1]

    def over(name: str, column: str, chosen: list[int]) -> list[float]:
        return [mean(rows, column, algorithm=name, sites=n) for n in chosen]

    redist = over("redist", "m", [n for n in numbers if n >= 4])
    third = max(1, len(numbers) // 3)
    readj = over("readj", "m", numbers)
    scan = over("scan", "m", numbers)
    middle = [n for n in numbers if 2 <= n <= 20]
    b = {name: float(np.mean(over(name, "b", middle))) for name in (*CONSTRUCTIONS, "consistent", "uniform")}
    many = [n for n in numbers if n > 20]
    late = (
        {name: float(np.mean(over(name, "b", many))) for name in (*CONSTRUCTIONS, "consistent", "uniform")}
        if many
        else {}
    )
    return [
        Claim(
            claim=f"uniform hash migrates more than 20 times the ideal at {last} sites",
            holds=mean(rows, "m", algorithm="uniform", sites=last) > 20,
            measured=round(mean(rows, "m", algorithm="uniform", sites=last), 1),
            paper="about 22",
        ),
        Claim(
            claim="redist's migration stays flat, about 1.15 (mean within 15 %, no trend above 0.01 per site)",
            holds=abs(float(np.mean(redist)) / 1.15 - 1) <= 0.15 and abs(_slope(redist)) <= 0.01,
            measured=f"mean {np.mean(redist):.3f}, {_slope(redist):+.4f} per site",
            paper="flat, about 1.15",
        ),
        Claim(
            claim="readj's migration rises with the number of sites",
            holds=float(np.mean(readj[-third:])) > float(np.mean(readj[:third])) and _slope(readj) > 0,
            measured=f"{np.mean(readj[:third]):.3f} to {np.mean(readj[-third:]):.3f}",
            paper="rises",
        ),
        Claim(
            claim="scan's migration rises with the number of sites",
            holds=float(np.mean(scan[-third:])) > float(np.mean(scan[:third])) and _slope(scan) > 0,
            measured=f"{np.mean(scan[:third]):.3f} to {np.mean(scan[-third:]):.3f}",
            paper="rises, above 3 at 32",
        ),
        Claim(
            claim="up to 20 sites readj has the lowest imbalance of the paper's functions",
            holds=b["readj"] <= min(b.values()),
            measured={name: round(value, 3) for name, value in b.items()},
            paper="lowest; uniform up to 36 % higher",
        ),
        Claim(
            claim="beyond 20 sites the hashes have the highest imbalance, above 2 for consistent hash",
            holds=bool(late)
            and late["consistent"] > 2
            and min(late["consistent"], late["uniform"]) > max(late[n] for n in CONSTRUCTIONS),
            measured={name: round(value, 3) for name, value in late.items()},
            paper="consistent highest, above 2",
        ),
    ]


def _slope(values: list[float]) -> float:
    return float(np.polyfit(np.arange(len(values)), values, 1)[0]) if len(values) > 1 else 0.0


def utility(rows: list[Row]) -> list[Claim]:
    """Figure 7."""
    kinds = list(dict.fromkeys(row["utility"] for row in rows))
    overall = {
        u: float(
            np.exp(
                np.mean(
                    [
                        np.log(mean(rows, "objective", algorithm=a, utility=u, resources=r))
                        for a in ("readj", "redist")
                        for r in LETTERS
                    ]
                )
            )
        )
        for u in kinds
    }
    return [
        *_readj_by_utility(rows, kinds),
        *_redist_by_utility(rows, kinds),
        Claim(
            claim="APM is the best overall: b(1 + m), geometric mean over constructions and resources (within 1 %)",
            holds=overall["APM"] <= min(overall.values()) * 1.01,
            measured={u: round(value, 3) for u, value in overall.items()},
            paper="APM",
        ),
    ]


def _readj_by_utility(rows: list[Row], kinds: list[str]) -> list[Claim]:
    moved = {
        u: float(np.mean([mean(rows, "m", algorithm="readj", utility=u, resources=r) for r in LETTERS])) for u in kinds
    }
    linear = [mean(rows, "b", algorithm="readj", utility=u, resources="LCL") for u in kinds]
    return [
        Claim(
            claim="readj: ignoring migration (A) migrates most",
            holds=moved["A"] >= max(moved.values()),
            measured={u: round(value, 3) for u, value in moved.items()},
            paper="A performs poorly",
        ),
        Claim(
            claim="readj: APM migrates least, mean over resources",
            holds=moved["APM"] <= min(moved.values()),
            measured={u: round(value, 3) for u, value in moved.items()},
            paper="APM, except APLM for LCL",
        ),
        Claim(
            claim="readj: the utility hardly changes the imbalance for LCL (within 5 %)",
            holds=max(linear) / min(linear) <= 1.05,
            measured=[round(value, 3) for value in linear],
            paper="almost no difference",
        ),
    ]


def _redist_by_utility(rows: list[Row], kinds: list[str]) -> list[Claim]:
    b = {u: mean(rows, "b", algorithm="redist", utility=u, resources="LQL") for u in kinds}
    m = {u: mean(rows, "m", algorithm="redist", utility=u) for u in kinds}
    return [
        Claim(
            claim="redist: APM and APLM balance best for LQL",
            holds=max(b["APM"], b["APLM"]) <= min(b["ATM"], b["ATLM"]),
            measured={u: round(value, 3) for u, value in b.items()},
            paper="up to 3 times lower",
        ),
        Claim(
            claim="redist: ATM and ATLM migrate least",
            holds=max(m["ATM"], m["ATLM"]) <= min(m["A"], m["APM"], m["APLM"]),
            measured={u: round(value, 3) for u, value in m.items()},
            paper="35 to 40 % lower than APM",
        ),
    ]


def domain(rows: list[Row]) -> list[Claim]:
    """Figure 8."""
    sizes = values_of(rows, "domain")
    b = {
        name: [mean(rows, "b", algorithm=name, domain=d) for d in sizes]
        for name in (*CONSTRUCTIONS, "consistent", "uniform")
    }
    m = {
        name: [mean(rows, "m", algorithm=name, domain=d) for d in sizes]
        for name in (*CONSTRUCTIONS, "consistent", "uniform")
    }
    hashes = [min(pair) for pair in zip(b["consistent"], b["uniform"])]
    return [
        Claim(
            claim="the constructions balance better than both hashes at every domain size",
            holds=all(max(b[n][i] for n in CONSTRUCTIONS) < hashes[i] for i in range(len(sizes))),
            measured={name: [round(value, 3) for value in values] for name, values in b.items()},
            paper="better; within 3 % of each other",
        ),
        Claim(
            claim="balance gets easier as the domain grows",
            holds=all(b[name][-1] < b[name][0] for name in CONSTRUCTIONS),
            measured={name: [round(value, 3) for value in b[name]] for name in CONSTRUCTIONS},
            paper="easier, flattening",
        ),
        Claim(
            claim="uniform hash migrates more than 6.5 times the ideal",
            holds=min(m["uniform"]) > 6.5,
            measured=[round(value, 2) for value in m["uniform"]],
            paper="6.5 to 7.5",
        ),
        Claim(
            claim="consistent hash migrates less than the ideal",
            holds=float(np.mean(m["consistent"])) < 1.0,
            measured=[round(value, 3) for value in m["consistent"]],
            paper="below 1",
        ),
        Claim(
            claim="the constructions migrate 1.25 to 2.2 times the ideal or less",
            holds=all(max(m[name]) <= 2.2 for name in CONSTRUCTIONS),
            measured={name: [round(value, 3) for value in m[name]] for name in CONSTRUCTIONS},
            paper="2.2 to 1.25, falling",
        ),
    ]
