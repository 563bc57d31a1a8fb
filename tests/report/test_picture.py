"""A picture as a file of its own."""

from xml.etree import ElementTree

from autoauto.report.markup import svg, tag
from autoauto.report.picture import picture_file


def test_the_file_is_whole() -> None:
    inner = svg("memory", "Memory", 200, 100, tag("rect", width=200, height=100, class_="s0"))
    text = picture_file(inner, [("s0", "a & b"), ("s1", "other")])
    root = ElementTree.fromstring(text)
    names = [one.tag.rpartition("}")[2] for one in root]
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert names == ["style", "rect", "rect", "text", "rect", "text", "svg"]
    assert (root.get("width"), root.get("height")) == ("232", "166")
    assert [one.text for one in root.iter() if one.get("class") == "tick"] == ["a & b", "other"]
