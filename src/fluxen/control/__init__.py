"""Control: statistics in, guarded actions out. No I/O, no clock; `fluxen.spark` and `fluxen.sim` carry actions out."""

from fluxen.control.actions import Action, next_placement
from fluxen.control.events import Event
from fluxen.control.guards import Limits
from fluxen.control.manager import Manager
from fluxen.control.stats import collect

__all__ = ["Action", "Event", "Limits", "Manager", "collect", "next_placement"]
