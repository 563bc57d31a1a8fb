"""How a notebook shows records, `Displayed`; `autoauto/__init__.py` gives `draw_with` the function that draws them."""

from __future__ import annotations

from collections.abc import Callable

Drawer = Callable[[object], str]
"""A record as HTML. It is in the report, which this room cannot import."""
_drawers: list[Drawer] = []


def draw_with(drawer: Drawer) -> None:
    """Show records by this function from now on."""
    _drawers[:] = [drawer]


class Displayed:
    """A record that a notebook shows as HTML instead of its `repr`."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        """What Jupyter and other notebooks show; None without a drawer, and they show the `repr`."""
        return _drawers[0](self) if _drawers else None
