"""Every operator there is: the contract suite (tests/contracts) runs each of them through all its traits allow."""

from __future__ import annotations

from fluxen.operators.aggregate.last import LastRows
from fluxen.operators.aggregate.running import Running
from fluxen.operators.aggregate.sessions import Sessions
from fluxen.operators.aggregate.windowed import Windowed
from fluxen.operators.base import Operator
from fluxen.operators.distinct import Distinct
from fluxen.operators.join.mway import Join
from fluxen.operators.join.outer import OuterJoin
from fluxen.operators.join.tree import TreeJoin
from fluxen.operators.top import Top
from fluxen.operators.union import Union
from fluxen.operators.user_code import Own, Stateful

__all__ = ["OPERATORS"]

OPERATORS: dict[str, type[Operator]] = {
    "join": Join,
    "join tree": TreeJoin,
    "outer join": OuterJoin,
    "running": Running,
    "windowed": Windowed,
    "sessions": Sessions,
    "last": LastRows,
    "distinct": Distinct,
    "top": Top,
    "union": Union,
    "user code": Stateful,
    "own operator": Own,
}
