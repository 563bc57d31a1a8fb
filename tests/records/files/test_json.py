"""Values as JSON and TOML: what comes back, what is refused in one line, and what the line names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from autoauto.records.errors import BadInput
from autoauto.records.files.fields import AnyWhole, Number, Positive, PositiveWhole, Text, Whole, stored_form
from autoauto.records.files.json import from_json, from_plain, read_json, to_json, to_plain, write_json
from autoauto.records.files.toml import MAX_TOML_BYTES, TomlFile, line_of, read_toml


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Point(NamedTuple):
    x: int
    y: float


@dataclass(frozen=True, slots=True)
class Box:
    corners: tuple[Point, ...]
    colour: Colour | None
    sizes: Mapping[str, Mapping[str, Whole]]
    column: NDArray[np.int32]
    size: int = 0

    def __post_init__(self) -> None:
        if self.size < 0:
            raise BadInput(f"size must be 0 or more, got {self.size}; leave it out")


@dataclass(frozen=True, slots=True)
class Boxes:
    boxes: tuple[Box, ...]


BOX: dict[str, Any] = {
    "corners": [[1, 2.5], [3, 4]],
    "colour": "red",
    "sizes": {"a": {"b": 1}, "c": {"d": 2, "e": 3}},
    "column": [7, 8],
    "size": 0,
}


def test_a_value_comes_back_as_it_was() -> None:
    box = from_plain(Box, BOX, "box")
    assert (box.corners, box.colour) == ((Point(1, 2.5), Point(3, 4.0)), Colour.RED)
    assert (str(box.column.dtype), box.column.tolist()) == ("int32", [7, 8])
    text = to_json(Boxes((box,)))
    assert json.loads(text) == {"boxes": [BOX]}
    assert json.loads(json.dumps(to_plain(from_json(Boxes, text, "boxes")))) == {"boxes": [BOX]}


def test_numbers_of_numpy_and_other_mappings_are_written() -> None:
    value = {"a": np.int64(3), "b": np.float64(0.5), "c": np.zeros((1, 2)), "d": MappingProxyType({"e": 1})}
    assert json.loads(to_json(value)) == {"a": 3, "b": 0.5, "c": [[0.0, 0.0]], "d": {"e": 1}}
    with pytest.raises(TypeError, match="object is no value of a file"):
        to_json(object())


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("colour",), "gren", "boxes[1].colour must be one of red, green, got 'gren'; did you mean 'green'?"),
        (("colour",), [], "boxes[1].colour must be one of red, green, got []; "),
        (("colour",), ..., "boxes[1] must have the field colour, got an object with corners, sizes, column, size; add"),
        (("corners",), 7, "boxes[1].corners must be a list, got 7; correct it there"),
        (("corners", 1), [1], "boxes[1].corners[1] must be a list of x, y, got [1]; "),
        (("corners", 1, 1), "far", "boxes[1].corners[1][1] must be a number, got 'far'; "),
        (("sizes",), [], "boxes[1].sizes must be an object of names, each with an object of names, "),
        (("sizes", "c", "e"), -1, "boxes[1].sizes.c.e must be a whole number from 0 to 2**53, got -1; "),
        (("column",), 7, "boxes[1].column: a column must be a list of numbers, got 7; "),
        (("column",), [7, "x"], "boxes[1].column: a column must be a list of numbers, got [7, 'x']; "),
        (("size",), -3, "boxes[1]: size must be 0 or more, got -3; leave it out"),
        (("size",), "x" * 1000, f"boxes[1].size must be a whole number, got '{'x' * 76}...; correct it there"),
    ],
)
def test_a_mistake_is_one_line_that_names_where_it_is(path: tuple[str | int, ...], value: object, message: str) -> None:
    document: dict[str, Any] = json.loads(json.dumps({"boxes": [BOX, BOX]}))
    parent: Any = document["boxes"][1]
    for key in path[:-1]:
        parent = parent[key]
    if value is ...:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    with pytest.raises(BadInput) as refused:
        from_json(Boxes, json.dumps(document), "b.json")
    assert str(refused.value).startswith(f"b.json: {message}")
    assert "\n" not in str(refused.value)


@dataclass(frozen=True, slots=True)
class Ascending:
    numbers: tuple[int, ...]

    def __post_init__(self) -> None:
        assert list(self.numbers) == sorted(self.numbers)


def test_an_assertion_of_a_class_is_one_line_too() -> None:
    with pytest.raises(BadInput, match=r"^x: the top level must hold together, a Ascending refuses it; make it anew$"):
        from_json(Ascending, '{"numbers": [2, 1]}', "x")


def test_a_refused_document_is_not_changed() -> None:
    document = {"a": {"b": 1}, "c": {"d": -1}}
    with pytest.raises(BadInput, match=r"^x: c\.d must be"):
        from_plain(dict[str, dict[str, Whole]], document, "x")
    assert document == {"a": {"b": 1}, "c": {"d": -1}}


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Whole, 0.5, "a whole number from 0 to 2**53, got 0.5"),
        (Whole, 7.0, "a whole number from 0 to 2**53, got 7.0"),
        (Whole, True, "a whole number from 0 to 2**53, got True"),
        (Whole, 2**53 + 1, "a whole number from 0 to 2**53, got 9007199254740993"),
        (Whole, 10**400, "a whole number from 0 to 2**53, got 1000"),
        (AnyWhole, 0.5, "a whole number from 0 to 2**53, got 0.5"),
        (AnyWhole, "7", "a whole number from 0 to 2**53, got '7'"),
        (AnyWhole, float("nan"), "a whole number from 0 to 2**53, got nan"),
        (AnyWhole, float("inf"), "a whole number from 0 to 2**53, got inf"),
        (PositiveWhole, 0, "a whole number from 1 to 2**53, got 0"),
        (Positive, 0, "a finite number above 0, got 0"),
        (Positive, float("inf"), "a finite number above 0, got inf"),
        (Number, float("nan"), "a finite number, got nan"),
        (Number, float("-inf"), "a finite number, got -inf"),
        (Text, "", "a text that is not empty, got ''"),
        (bool, 1, "true or false, got 1"),
        (Literal["a", "b"], "c", "one of a, b, got 'c'"),
        (tuple[int, int], [1], "a list of 2, got [1]"),
        (list[int] | None, 3, "a list, got 3"),
        (int | Number, "x", "a finite number, got 'x'"),
        (int | str, None, "a whole number or a text, got None"),
        (Box, [], "an object with the fields corners, colour, sizes, column, got []"),
        (dict[str, str], "x", "an object of names, each with a text, got 'x'"),
    ],
)
def test_the_message_says_what_a_value_must_be(kind: Any, value: object, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        from_plain(kind, value, "v")
    assert str(refused.value).startswith(f"v: the top level must be {message}")


def test_whole_numbers_of_others_may_have_a_point() -> None:
    assert from_plain(list[AnyWhole], [7.0, 2**53, 0], "v") == [7, 2**53, 0]


def test_a_number_that_no_reader_holds_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^v must be JSON: .*out of range"):
        from_json(Any, f"1{'0' * 5000}", "v")


class Numbered(NamedTuple):
    n: int


def test_a_value_of_another_schema_is_refused() -> None:
    form = stored_form(Numbered)
    assert to_json(Numbered(3)._asdict(), schema=2) == b'{"n":3,"schema":2}'
    assert from_json(form, '{"n": 3, "schema": 2}', "old.json", 2).n == 3  # type: ignore[attr-defined]
    for number in ("1", "3", "-1", "null", "[]", "true", '"2"'):
        with pytest.raises(
            BadInput, match=r"^old\.json: schema must be 2, got .*; make the file anew with this version"
        ):
            from_json(form, f'{{"n": 3, "schema": {number}}}', "old.json", 2)
    with pytest.raises(BadInput, match=r"^old\.json: schema must be 1, got none"):
        from_json(form, '{"n": 3}', "old.json", 1)
    with pytest.raises(BadInput, match=r"^old\.json: the top level must be an object with fields, got 7"):
        from_json(form, "7", "old.json", 1)


def test_a_stored_form_has_names_and_limits_of_its_own() -> None:
    form = stored_form(Point, {"x": "left"}, y=Positive)
    assert from_json(form, '{"left": 3, "y": 1}', "p") == form(x=3, y=1.0)
    for text, message in (
        ('{"x": 3, "y": 1}', "p: the top level must have the field left"),
        ('{"left": -3, "y": 1}', "p: left must be a whole number from 0"),
        ('{"left": 3, "y": 0}', "p: y must be a finite number above 0"),
    ):
        with pytest.raises(BadInput, match=message):
            from_json(form, text, "p")


@pytest.mark.parametrize("content", [None, b"{", b"", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}'])
def test_an_unreadable_json_file_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "profile.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match="JSON") as refused:
        read_json(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_line_of_a_syntax_error_is_named() -> None:
    with pytest.raises(BadInput, match=r"^x\.json, line 3 must be JSON: JSON is malformed: invalid character; correct"):
        from_json(Any, '{"a": 1,\n\n"b": NaN}', "x.json")


def test_written_json_is_read(tmp_path: Path) -> None:
    plain = {"a": [1, None, "\u00e9"], "b": {}, "c": 0.1}
    write_json(plain, tmp_path / "a.json")
    assert read_json(tmp_path / "a.json") == plain
    assert (tmp_path / "a.json").read_text() == json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


def test_an_unwritable_json_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a file must be writable"):
        write_json({}, tmp_path / "no" / "a.json")


TEXT = '''\
# a = 0
text = """
a = 1
[b]
a = 2
"""
a = 3

[b]
# a = 4
"a" = [
  "one",
  "two", # one
]
c = { d = 1, a = [
  5,
] }

[b.e.f]
a = 6
'''


@pytest.mark.parametrize(
    ("keys", "item", "line"),
    [
        ("a", "", 7),
        ("text", "", 2),
        ("b", "", 9),
        ("b a", "", 11),
        ("b a", "two", 13),
        ("b a", "missing", 11),
        ("b c", "", 15),
        ("b c a", "", 15),
        ("b c a", "5", 16),
        ("b e", "", 19),
        ("b e f a", "", 20),
    ],
)
def test_the_line_of_a_key(keys: str, item: str, line: int) -> None:
    assert line_of(TEXT, keys.split(), item) == line
    assert line_of(TEXT.replace("\n", "\r\n"), keys.split(), item) == line


@given(st.lists(st.sampled_from(["", "# x = 1", "s = '''\nx = 1\n'''", "l = [\n 'x = 1',\n]"]), unique=True))
def test_comments_and_strings_are_no_keys(before: list[str]) -> None:
    text = "\n".join([*before, "x = 1", "y = 2"])
    assert line_of(text, ["x"]) == text[: text.index("x = 1\ny = 2")].count("\n") + 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = 1\nb = \n", "line 2: the file must be TOML"),
        (b"a = 1\na = 2\n", "line 2: the file must be TOML"),
        (b"a = [\n1,\n", "line 2: the file must be TOML"),
        (b"a = 1\nb = '\xff'\n", "line 2: a TOML file is UTF-8 text, got byte 0xff"),
        (b"a = " + b"[" * 5000, "the file must be TOML|at most 20 deep"),
        (b"a" + b".a" * 5000 + b" = 1", "at most 20 deep, got more; write fewer dots or brackets"),
        (b"[a" + b".a" * 30 + b"]", "at most 20 deep"),
        (b"#" * (MAX_TOML_BYTES + 1), "at most 100,000 bytes"),
    ],
)
def test_a_file_that_is_no_toml_is_reported_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=message) as refused:
        read_toml(path)
    assert "\n" not in str(refused.value)


def test_a_mark_of_the_order_of_bytes_is_no_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "marked.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\n")
    assert read_toml(path).table == {"a": 1}


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path, Path("a\0b")):
        with pytest.raises(BadInput, match="check the path"):
            read_toml(path)


def test_an_endless_file_is_not_read_to_its_end() -> None:
    with pytest.raises(BadInput, match="at most 100,000 bytes, /dev/zero has more; check the path"):
        read_toml(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("size = 3", "size = -3", 1, "size must be 0 or more, got -3; leave it out"),
        ("size = 3", 'size = "x"', 2, "size must be a whole number, got 'x'"),
        ("[3, 4],", '[3, "y"],', 3, "corners[1][1] must be a number, got 'y'"),
        ("d = 2", "d = -2", 11, "sizes.c.d must be a whole number from 0 to 2**53, got -2"),
        ('colour = "red"', "", 1, "the top level must have the field colour"),
    ],
)
def test_a_mistake_in_a_toml_file_is_reported_with_its_line(old: str, new: str, line: int, message: str) -> None:
    text = """schema = 1
size = 3
corners = [
  [1, 2.5],
  [3, 4],
]
column = []
colour = "red"
[sizes]
a = { b = 1 }
c.d = 2
"""
    import tomllib

    def read(text: str) -> Box:
        return TomlFile(tomllib.loads(text), "box.toml", text).read(Box, schema=1)

    assert read(text).size == 3
    with pytest.raises(BadInput) as refused:
        read(text.replace(old, new))
    assert str(refused.value).startswith(f"box.toml, line {line}: {message}")
