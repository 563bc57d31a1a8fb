"""Elements, escaping, axes whose ticks are round, and pictures of any chart."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis.strategies import floats, integers

from autoauto.report.charts.chart import Axis, Chart, Mark, Panel, Series, Shape, category_axis
from autoauto.report.charts.svg import Scale, panel_svg, picture_file, round_step
from autoauto.report.style import tag, words

ROWS = Panel(
    "",
    Axis("cycles", 0.0, 10.0),
    category_axis("device", ("0", "1")),
    (
        Series("a & b", "s0", Shape.BAR, (Mark(0, 0, "first", "F0", 5.0), Mark(5, 1, "second", "F1000", 5.5))),
        Series("limit", "limit", Shape.TICK, (Mark(8, 0, "limit: 8", "limit: 8"), Mark(8, 1, "limit: 8", "limit: 8"))),
    ),
    400,
    80.0,
)
DOTS = Panel(
    "n < 2",
    Axis("size", 0.0, 10.0),
    Axis("rate", 0.0, 10.0),
    (Series("other", "s1", Shape.JOINED, (Mark(2, 4, "two"), Mark(2.001, 4, "hidden"), Mark(9, None, "nine"))),),
    300,
    200.0,
    "no fit",
)


def drawn(panel: Panel) -> ElementTree.Element:
    return ElementTree.fromstring(panel_svg(Chart("c", "Title <", "text", (panel,)), 0))


def of_class(root: ElementTree.Element, class_: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if class_ in element.get("class", "").split()]


def test_text_never_becomes_markup() -> None:
    element = tag("td", words('<script>"&'), title='a "quoted" <b>')
    assert element == '<td title="a &quot;quoted&quot; &lt;b&gt;">&lt;script&gt;&quot;&amp;</td>'
    assert ElementTree.fromstring(element).text == '<script>"&'


@given(low=floats(0, 1e6), width=floats(1e-3, 1e7), n=integers(2, 9))
def test_ticks_are_on_the_axis_and_not_too_many(low: float, width: float, n: int) -> None:
    axis = Scale(low, low + width, 0.0, 100.0)
    ticks = axis.ticks(n)
    assert len(ticks) <= n + 1
    assert all(-1e-3 <= axis.pixel(tick) <= 100.001 for tick in ticks)


@given(floats(1e-9, 1e12))
def test_a_step_is_the_next_round_number(minimum: float) -> None:
    step = round_step(minimum)
    assert minimum * (1 - 1e-6) <= step <= minimum * 2.5 * (1 + 1e-6)


def test_numbers_and_categories_are_at_their_pixels() -> None:
    root = drawn(ROWS)
    ticks = {tick.text: float(str(tick.get("x"))) for tick in of_class(root, "tick")}
    first, second = of_class(root, "s0")[0]
    assert float(str(first.get("x"))) == ticks["0"]
    assert float(str(first.get("x"))) + float(str(first.get("width"))) == (ticks["4"] + ticks["6"]) / 2
    middles = [float(str(bar.get("y"))) + float(str(bar.get("height"))) / 2 for bar in (first, second)]
    labels = {label.text: float(str(label.get("y"))) - 4 for label in of_class(root, "label")}
    assert labels == {"0": middles[0], "1": middles[1]}


def test_a_name_is_written_on_bars_only_if_the_longest_fits() -> None:
    assert [text.text for group in of_class(drawn(ROWS), "on-bar") for text in group] == ["F0"]


def test_the_text_of_ticks_is_written_once_above() -> None:
    assert [tick.text for tick in of_class(drawn(ROWS), "tick")].count("limit: 8") == 1


def test_dots_that_would_cover_each_other_are_drawn_once_and_what_has_no_value_is_a_cross() -> None:
    root = drawn(DOTS)
    (dots,), (crosses,) = of_class(root, "dot"), of_class(root, "cross")
    assert [dot.findtext("title") for dot in dots] == ["two"]
    assert [cross.findtext("title") for cross in crosses] == ["nine"]
    assert "no fit" in [tick.text for tick in of_class(root, "tick")]


def test_a_picture_has_a_name_and_a_title() -> None:
    for panel, name, title in ((ROWS, "c", "Title <"), (DOTS, "c-0", "Title <, n < 2")):
        root = drawn(panel)
        label = root.find("title")
        assert label is not None
        assert (root.get("id"), root.get("role"), root.get("aria-labelledby")) == (name, "img", label.get("id"))
        assert label.text == title


def test_a_picture_file_has_style_background_legend_and_panels_side_by_side() -> None:
    text = picture_file(Chart("c", "Title", "text", (ROWS, DOTS)))
    root = ElementTree.fromstring(text)
    names = [element.tag.rpartition("}")[2] for element in root]
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert names == ["style", "rect", "rect", "text", "rect", "text", "svg", "svg"]
    assert [panel.get("x") for panel in list(root)[-2:]] == ["0", "400"]
    assert root.get("width") == str(400 + 300 + 32)
    assert [element.text for element in list(root)[3:6:2]] == ["a & b", "other"]


def test_names_of_a_legend_stand_beside_each_other() -> None:
    """A box of 12, its name 18 from its start, 7 a letter, and 18 between names: "a & b" has five letters."""
    other = ROWS._replace(series=(ROWS.series[0], ROWS.series[1]._replace(shape=Shape.BAR)))
    picture = ElementTree.fromstring(picture_file(Chart("c", "t", "", (other,))))
    boxes = [float(each.get("x", "")) for each in picture if each.tag.endswith("rect") and each.get("rx") == "3"]
    texts = [float(each.get("x", "")) for each in picture if each.tag.endswith("text") and each.get("y") == "11"]
    assert boxes == [0.0, 36.0 + 7 * 5]
    assert texts == [18.0, 18.0 + 36 + 7 * 5]
