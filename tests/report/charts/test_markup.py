"""Elements, escaping, and axes whose ticks are round."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis.strategies import floats, integers

from autoauto.report.charts.markup import Axis, bottom_axis, left_axis, picture_file, round_step, svg, table, tag, words


def test_text_never_becomes_markup() -> None:
    element = tag("td", words('<script>"&'), title='a "quoted" <b>')
    assert element == '<td title="a &quot;quoted&quot; &lt;b&gt;">&lt;script&gt;&quot;&amp;</td>'
    assert ElementTree.fromstring(element).text == '<script>"&'


@given(low=floats(0, 1e6), width=floats(1e-3, 1e7), n=integers(2, 9))
def test_ticks_are_on_the_axis_and_not_too_many(low: float, width: float, n: int) -> None:
    axis = Axis(low, low + width, 0.0, 100.0)
    ticks = axis.ticks(n)
    assert len(ticks) <= n + 1
    assert all(-1e-3 <= axis.pixel(tick) <= 100.001 for tick in ticks)


@given(floats(1e-9, 1e12))
def test_a_step_is_the_next_round_number(minimum: float) -> None:
    step = round_step(minimum)
    assert minimum * (1 - 1e-6) <= step <= minimum * 2.5 * (1 + 1e-6)


def test_an_axis_puts_numbers_at_their_pixels() -> None:
    across = bottom_axis(Axis(0.0, 10.0, 100.0, 300.0), 50.0, "cycles", 2, top=0.0)
    assert '<text x="200" y="66" class="tick" text-anchor="middle">5</text>' in across
    assert across.count("<line") == 3
    assert across.endswith(">cycles</text>")
    up = left_axis(Axis(0.0, 10.0, 100.0, 0.0), 40.0, "rate", 1, right=90.0)
    assert '<text x="32" y="4" class="tick" text-anchor="end">10</text>' in up


def test_a_picture_has_a_name_and_a_title() -> None:
    picture = ElementTree.fromstring(svg("memory", "Memory < limit", 100, 50))
    label = picture.find("title")
    assert label is not None
    assert (picture.get("role"), picture.get("aria-labelledby")) == ("img", label.get("id"))
    assert label.text == "Memory < limit"


def test_a_table_cell_has_its_head_as_an_attribute() -> None:
    root = ElementTree.fromstring(table(["stage", "bytes"], [["0", "12"], ["1", "7"]], ["bytes"], "memory"))
    assert [head.text for head in root.iter("th")] == ["stage", "bytes"]
    assert [cell.get("data-head") for cell in root.iter("td")] == ["stage", "bytes"] * 2
    assert [cell.get("class") for cell in root.iter("td")] == [None, "number"] * 2
    assert [caption.text for caption in root.iter("caption")] == ["memory"]


def test_a_picture_file_has_style_background_legend_and_picture() -> None:
    inner = svg("memory", "Memory", 200, 100, tag("rect", width=200, height=100, class_="s0"))
    text = picture_file(inner, [("s0", "a & b"), ("s1", "other")])
    root = ElementTree.fromstring(text)
    names = [element.tag.rpartition("}")[2] for element in root]
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert names == ["style", "rect", "rect", "text", "rect", "text", "svg"]
    assert (root.get("width"), root.get("height")) == ("232", "166")
    assert [element.text for element in root.iter() if element.get("class") == "tick"] == ["a & b", "other"]
