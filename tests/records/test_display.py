"""Records in a notebook: by the function that was given last, else as their `repr`."""

import pytest

from autoauto.records import display


class _Shown(display.Displayed):
    pass


def test_the_last_drawer_shows_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "_drawers", [])
    record = _Shown()
    assert record._repr_html_() is None
    drawn: list[object] = []

    def draw(what: object) -> str:
        drawn.append(what)
        return "<b>second</b>"

    display.draw_with(lambda _: "<b>first</b>")
    assert record._repr_html_() == "<b>first</b>"
    display.draw_with(draw)
    assert record._repr_html_() == "<b>second</b>"
    assert drawn == [record]
