"""One table in the terminal, in HTML and in Markdown."""

import io
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from rich.console import Console

from autoauto.report.tables.table import Column, Style, Table, TableCell, html_table, markdown_table, renderable, show

NAME = "/bert/encoder/layer.11/attention/self/query/MatMul"
TABLE = Table(
    "Stages [bold]",
    (Column("stage\nlayers"), Column("compute\ncycles", "compute_cycles"), Column("memory")),
    (
        ("0\n[0, 2)", TableCell("2,000\nslowest", Style.STRONG), TableCell("2.0 KiB, 50 %", share=0.5)),
        ("1\n[2, 5)", 1000, TableCell("a <b> | c", Style.CODE)),
        ("2", None, ""),
    ),
    "first line\nsecond line",
)
TERMINAL = """\
Stages [bold]
stage   compute
layers   cycles  memory
─────────────────────────────────
0         2,000  2.0 KiB, 50 %
[0, 2)  slowest  ━━━━━━━━
1         1,000  a <b> | c
[2, 5)
2             -
first line
second line"""
MARKDOWN = """\
### Stages [bold]

| stage layers | compute cycles | memory |
| --- | ---: | --- |
| 0 [0, 2) | **2,000 slowest** | 2.0 KiB, 50 % |
| 1 [2, 5) | 1,000 | `a <b> / c` |
| 2 | - |  |

first line  
second line"""


def test_in_the_terminal_it_is_drawn(text: Callable[..., str]) -> None:
    assert text(TABLE) == TERMINAL


def test_in_the_terminal_names_control_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a\x1b[2J\a\u202e\u200b\x9b"
    cells = (name, TableCell(name, Style.LAYER))
    show(Table(name, (Column(name), Column("layer")), (cells,), name), name)
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.split("\n"))
    assert shown.count(r"\x1b[2J\x07\u202e\u200b\x9b") == 6


def test_in_markdown_every_row_is_a_line() -> None:
    assert markdown_table(TABLE) == MARKDOWN


def test_in_html_a_cell_has_its_head_as_an_attribute() -> None:
    root = ElementTree.fromstring(html_table(TABLE))
    heads = ["stage layers", "compute cycles", "memory"]
    assert [head.text for head in root.iter("th")] == heads
    assert [cell.get("data-head") for cell in root.iter("td")] == heads * 3
    assert [cell.get("class") for cell in root.iter("td")] == [None, "number", None] * 3
    assert [caption.text for caption in root.iter("caption")] == ["Stages [bold]; first line; second line"]
    assert [code.text for code in root.iter("code")] == ["a <b> | c"]
    assert [bar.get("style") for bar in root.iter("i")] == ["width:50.0%"]


def test_columns_for_which_there_is_no_room_are_left_out() -> None:
    narrow = TABLE.without("compute cycles")
    assert [column.words for column in narrow.columns] == ["stage layers", "memory"]
    assert [row[0] for row in narrow.rows] == ["0\n[0, 2)", "1\n[2, 5)", "2"]


def test_without_heads_there_is_no_row_for_them(text: Callable[..., str]) -> None:
    table = Table("What binds", (Column(""),) * 2, (("compute", "10 cycles"),))
    assert text(table).splitlines() == ["What binds", "compute  10 cycles"]
    assert "<th" not in html_table(table)


def test_groups_are_separated_in_the_terminal(text: Callable[..., str]) -> None:
    rows = (("0", 1), ("0", 2), ("1", 3))
    lines = text(Table("t", (Column("stage"), Column("cycles", "cycles")), rows, grouped=True)).splitlines()
    assert [line.split() for line in lines[3:]] == [["0", "1"], ["0", "2"], [], ["1", "3"]]


def test_lines_of_text_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show("a [b]", "", Table("t", (Column("count", "n"),), ((1,),)))
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == ["a [b]", "", "t", "count", "─────", "1"]


def test_a_table_can_be_written_as_ascii() -> None:
    file = io.BytesIO()
    table = Table("t", (Column("name"), Column("count", "n")), ((TableCell(NAME, Style.LAYER), 1),))
    written = io.TextIOWrapper(file, encoding="ascii")
    Console(file=written, width=20).print(renderable(table))
    written.flush()
    row = file.getvalue().decode("ascii").splitlines()[-1].split()
    assert (row[0], row[-1]) == ("...s/q/MatMul", "1")
