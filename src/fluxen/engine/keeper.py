"""Holds a checkpoint's claim while a query runs, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fluxen.errors import CheckpointError, FluxenError
from fluxen.state import claim as claims
from fluxen.state.claim import Claim
from fluxen.state.store import Store

__all__ = ["ClaimKeeper"]


class ClaimKeeper:
    """Renews the claim until told to stop; calls `lost` if another driver has taken it over."""

    def __init__(self, store: Store, name: str, lost: Callable[[CheckpointError], None]) -> None:
        self.claim: Claim = claims.take(store)
        self._lost = lost
        self._ending = threading.Event()
        threading.Thread(target=self._keep, name=f"fluxen-{name}", daemon=True).start()

    def _keep(self) -> None:
        while not self._ending.wait(claims.RENEWAL):
            try:
                self.claim.renew()
            except CheckpointError as error:
                if not self._ending.is_set():
                    self._lost(error)
                return
            except (FluxenError, OSError):
                continue  # a filesystem that answers again before the lease is over has done no harm

    def stop(self) -> None:
        """Renew no more; the claim itself is still held."""
        self._ending.set()

    def release(self) -> None:
        self.stop()
        self.claim.release()
