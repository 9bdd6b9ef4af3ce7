"""Shapes of join trees, and which tree each site runs and each partition group's state was built for.

A tree joins inputs 0..m-1. An inner node joins two or more children, which are inputs or other inner nodes, so one
notation covers binary trees of any shape, the m-way join (one node over all inputs) and everything in between. Every
inner node but the root keeps its results as state; that state is known by the set of inputs it combines, so two trees
share the states whose sets they share (Zhu and Rundensteiner, section 4.1, call them matching states).

`fluxen.operators.join.tree` runs trees, `fluxen.control.plans.optimizer` chooses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from fluxen.arrays import Groups, Ints, Json, Mask
from fluxen.errors import DamagedError
from fluxen.state.routing import Routing, base_group, mask_of, ranges

Tree: TypeAlias = int | tuple["Tree", ...]
_TOKEN = re.compile(r"\(|\)|\w+")


def members(tree: Tree) -> tuple[int, ...]:
    """The inputs below a node, in order of their numbers.

    >>> members(((2, 0), 3))
    (0, 2, 3)
    """
    return (tree,) if isinstance(tree, int) else tuple(sorted(i for child in tree for i in members(child)))


def canonical(tree: Tree) -> Tree:
    """The same tree with every node's children ordered by their first input: equal shapes become equal values."""
    if isinstance(tree, int):
        return tree
    return tuple(sorted((canonical(child) for child in tree), key=members))


def nodes(tree: Tree) -> Iterator[tuple[Tree, ...]]:
    """The inner nodes, children before parents; the root comes last."""
    if not isinstance(tree, int):
        for child in tree:
            yield from nodes(child)
        yield tree


def intermediates(tree: Tree) -> frozenset[tuple[int, ...]]:
    """The sets of inputs whose combinations the tree keeps as state.

    >>> sorted(intermediates((((0, 1), 2), 3)))
    [(0, 1), (0, 1, 2)]
    >>> intermediates((0, 1, 2))
    frozenset()
    """
    whole = members(tree)
    return frozenset(members(node) for node in nodes(tree) if members(node) != whole)


def height(tree: Tree) -> int:
    """Joins between an input and the root, at most."""
    return 0 if isinstance(tree, int) else 1 + max(height(child) for child in tree)


def left_deep(inputs: int) -> Tree:
    """Inputs joined in the order they were given."""
    tree: Tree = 0
    for number in range(1, inputs):
        tree = (tree, number)
    return tree


def write(tree: Tree, names: Sequence[str] | None = None) -> str:
    """A tree as text, with the inputs' numbers or names.

    >>> write(((0, 1), 2)), write(((0, 1), 2), ["a", "b", "c"])
    ('((0 1) 2)', '((a b) c)')
    """
    if isinstance(tree, int):
        return str(tree) if names is None else names[tree]
    return f"({' '.join(write(child, names) for child in tree)})"


@lru_cache(maxsize=1024)
def read(text: str) -> Tree:
    """The inverse of `write` with numbers.

    >>> read("((0 1) 2)")
    ((0, 1), 2)
    """
    stack: list[list[Tree]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")" and len(stack) > 1:
            node = tuple(stack.pop())
            stack[-1].append(node)
        elif token.isdigit():
            stack[-1].append(int(token))
    tree = stack[0][0] if len(stack) == 1 and len(stack[0]) == 1 else 0
    if isinstance(tree, int) or members(tree) != tuple(range(len(members(tree)))):
        raise DamagedError(f"{text!r} is not a join tree; expected something like '((0 1) 2)'")
    return tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """The sender's half of a move by parallel track: a copy of a partition group that only finishes old work.

    While it lives, new rows of its keys go both to the group's owner and to this copy. The copy has a group id of its
    own in the routing table, so its state never mixes with the owner's.
    """

    group: int
    """id of the copy"""
    of: int
    """the group that moved"""
    partition: int
    """ordinary group its keys hash to"""
    key: int | None
    """the one key hash it covers, if the group is a heavy key's own"""
    without: tuple[int, ...]
    """key hashes that had groups of their own when the move began"""
    old_until_epoch: int
    """the last epoch whose rows are old"""
    tree: str
    """the tree its state was built for; empty for operators without trees"""
    receiver: int
    action: int = 0
    """id of the move in the log"""
    until: int | None = None
    """operators whose results are per window: the end of the last window the sender still owns"""
    remains: bool = False
    """operators whose results are per key: what the sender has kept since goes to the group's owner in the end"""
    started: float = 0.0

    def to_json(self) -> Json:
        return {name: getattr(self, name) for name in self.__slots__}

    @staticmethod
    def from_json(data: Json) -> Track:
        return Track(**{**data, "without": tuple(data["without"])})

    def covers(self, h: Ints, partitions: int) -> Mask:
        """Which key hashes belong to this copy."""
        if self.key is not None:
            return np.asarray(h == self.key)
        mine: Mask = base_group(h, partitions) == self.partition
        return mine & ~np.isin(h, np.array(self.without, dtype=np.int64)) if self.without else mine

    def owners(self, routing: Routing) -> list[int]:
        """The groups that its keys belong to now; some may have got groups of their own since."""
        own = routing.own_groups()
        if self.key is not None:
            return [own.get(self.key, self.partition)]
        inside = routing.explicit[base_group(routing.explicit, routing.partitions) == self.partition].tolist()
        return [self.partition, *(own[h] for h in inside if h not in self.without)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """One epoch's plans: data beside the routing table."""

    sites: tuple[str, ...]
    """the tree each site runs"""
    known: tuple[str, ...]
    held: Groups
    """per group: index into `known` of the tree its stored states are complete for"""

    @staticmethod
    def start(tree: Tree, routing: Routing) -> Trees:
        text = write(canonical(tree))
        return Trees(sites=(text,) * routing.sites, known=(text,), held=np.zeros(routing.size, dtype=np.int32))

    def held_by(self, group: int) -> str:
        return self.known[int(self.held[group])]

    def at(self, site: int, routing: Routing) -> tuple[str, tuple[tuple[str, Mask], ...]]:
        """The tree of a site, and its groups whose state fits another one: (that tree, which groups)."""
        tree, mine = self.sites[site], routing.owned(site)
        others = [(text, mine & (self.held == number)) for number, text in enumerate(self.known) if text != tree]
        return tree, tuple((text, groups) for text, groups in others if groups.any())

    def settled(self, routing: Routing) -> Trees:
        """After a batch: every site has brought its groups' states in line with its own tree."""
        known = tuple(sorted(set(self.sites)))
        index = np.array([known.index(text) for text in self.sites], dtype=np.int32)
        return replace(self, known=known, held=index[routing.table])

    def replanned(self, site: int, tree: Tree) -> Trees:
        sites = list(self.sites)
        sites[site] = write(canonical(tree))
        return replace(self, sites=tuple(sites))

    def emptied(self, group: int, site: int) -> Trees:
        """`group` has no state, which is complete for any tree: take the tree of `site`."""
        known = self.known if self.sites[site] in self.known else (*self.known, self.sites[site])
        held = self.held.copy()
        held[group] = known.index(self.sites[site])
        return replace(self, known=known, held=held)

    def bare(self, groups: Mask) -> Trees:
        """`groups` have lost what was kept between their inputs, which is all that the m-way join needs."""
        flat = write(tuple(range(self.inputs)))
        known = self.known if flat in self.known else (*self.known, flat)
        return replace(self, known=known, held=np.where(groups, np.int32(known.index(flat)), self.held))

    @property
    def inputs(self) -> int:
        return len(members(read(self.sites[0])))

    def routed(self, before: Routing, after: Routing) -> Trees:
        """The same plans under another routing table, with more or fewer sites and groups."""
        sites = tuple(self.sites[site % before.sites] for site in range(after.sites))
        held = np.concatenate([self.held, np.zeros(after.size - len(self.held), dtype=np.int32)])
        fresh = ~np.isin(after.explicit, before.explicit)
        held[after.explicit_groups[fresh]] = held[base_group(after.explicit[fresh], after.partitions)]
        return replace(self, sites=sites, held=held)

    def to_json(self) -> Json:
        held = {text: ranges(self.held == number) for number, text in enumerate(self.known)}
        return {"sites": self.sites, "held": held, "groups": len(self.held)}

    @staticmethod
    def from_json(data: Json) -> Trees:
        held = np.zeros(data["groups"], dtype=np.int32)
        for number, spans in enumerate(data["held"].values()):
            held[mask_of(tuple((a, b) for a, b in spans), len(held))] = number
        return Trees(sites=tuple(data["sites"]), known=tuple(data["held"]), held=held)
