"""How often Python collects reference cycles: seldom in a command, as often as by default in a server."""

from __future__ import annotations

import gc

COLLECT_EVERY = 500_000
"""New objects after which a command collects cycles. Ours are in none; of a library's one object in a hundred is. Every
700, as Python does by default, takes 10 % of a search, every 50,000 still 5 %."""


def collect_seldom() -> None:
    """Collect garbage rarely, for a command, which ends soon."""
    gc.set_threshold(COLLECT_EVERY)


def collect_often() -> None:
    """Collect garbage as often as by default, for a server; objects of its start are not looked at again."""
    gc.freeze()
    gc.set_threshold(700, 10, 10)


def collect_no_more() -> None:
    """Stop collecting garbage at the end of a command, which would take a tenth of the time of a search."""
    gc.freeze()
