"""Tables of layers as CSV."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoauto.profile.importers.layer_table import read_layer_table
from autoauto.profile.importers.recorded import RecordedLayer
from autoauto.records.errors import BadInput

SHORT = "name,forward_s,output_bytes\n"
TABLE = """name,forward_s,backward_s,parameter_bytes,activation_bytes,output_bytes
a,0.5,1,10,100,20
b,0.25,0,0,8,16
"""


def table(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_bytes(text.encode())
    return path


def test_a_row_is_a_layer_that_reads_what_the_row_before_writes(tmp_path: Path) -> None:
    profile = read_layer_table(table(tmp_path, TABLE))
    assert (profile.name, profile.batch_sizes, profile.trains) == ("table", (1,), True)
    assert profile.at(1) == (
        RecordedLayer("a", 0.5, 1.0, 10, 100, temporary_bytes=100, input_bytes=0, output_bytes=20),
        RecordedLayer("b", 0.25, 0.0, 0, 8, temporary_bytes=36, input_bytes=20, output_bytes=16),
    )


@pytest.mark.parametrize(
    "text",
    [
        TABLE.replace("0.25", "0,25").replace("0.5", "0,5").replace(",", ";").replace("0;25", "0,25"),
        TABLE.replace(",", "\t"),
        TABLE.replace(",", "\t").replace("0.25", "0,25"),
        "\r\n\r\n" + TABLE.replace(",", ";"),
        "\ufeff" + TABLE.replace("\n", "\r\n\r\n"),
        TABLE.replace("name,forward_s", " name , forward_s "),
        TABLE.replace("name,forward_s", "Name,FORWARD_S"),
    ],
    ids=[
        "decimal comma",
        "tabs",
        "tabs and decimal comma",
        "empty lines first",
        "byte order mark and empty lines",
        "spaces",
        "capitals",
    ],
)
def test_what_spreadsheets_write_is_the_same(text: str, tmp_path: Path) -> None:
    first = read_layer_table(table(tmp_path, TABLE.replace("0.5,1", "0.5,1"))).at(1)
    fixed = text.replace("0;5;1", "0,5;1")
    assert read_layer_table(table(tmp_path, fixed)).at(1) == first


def test_batch_sizes_are_a_column_or_that_of_the_file(tmp_path: Path) -> None:
    both = "name,forward_s,output_bytes,batch_size,input_bytes\na,1,8,2,4\na,3,16,4,8\n"
    profile = read_layer_table(table(tmp_path, both))
    assert profile.batch_sizes == (2, 4)
    assert [profile.at(size)[0].forward_s for size in (2, 3, 4)] == [1, 2, 3]
    assert profile.at(3)[0].input_bytes == 6
    assert read_layer_table(table(tmp_path, TABLE), None, 16).batch_sizes == (16,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1: .* needs the columns name, forward_s, output_bytes, name is missing"),
        ("name,forward_s\n", "output_bytes is missing"),
        (TABLE.replace("backward_s", "backwards"), "line 1: columns are .*, got 'backwards'"),
        (TABLE.replace("backward_s", "name"), "once each, got 'name'"),
        (TABLE.replace("0.25", "-1"), "line 3: forward_s must be a number from 0 to 1e.06, got '-1'"),
        (TABLE.replace("0.25", "nan"), "line 3: forward_s must be a number"),
        (TABLE.replace("0.25", ""), "line 3: forward_s must be a number .*, got ''"),
        (TABLE.replace("b,", ","), "line 3: a layer must have a name"),
        (
            TABLE.replace(",", ";").replace("100", "1.234"),
            "line 2: activation_bytes must be a whole number, got '1.234'",
        ),
        (
            "name;forward_s;output_bytes\na;0,5;1.000\n",
            "line 2: a table with decimal commas must have no points in numbers, got 1.000; write it without",
        ),
        (TABLE + "Total,0.75,1,10,108,16\n", "line 4: a row must be a layer, 'Total' has the time of all rows above"),
        (TABLE + "Summe,0.75,1,10,108,16\n", "line 4: .* 'Summe' has the time of all rows above"),
        (SHORT + "Total,3,0\na,1,1\nb,2,1\n", "line 2: .* 'Total' has the time of all other rows, 3 s; leave it out"),
        (SHORT + "e,3,1\ne.layer.0,1,1\ne.layer.1,2,1\nhead,1,1\n", "line 2: .* 'e' has the time of all its parts"),
        (SHORT + "e/0,1,1\ne/1,2,1\ne/1/a,1,1\ne/1/b,1,1\ne,3,1\n", "line 3: .* 'e/1' has the time of all its parts"),
        ("\n\nname,forward_s\n", "line 3: .* output_bytes is missing"),
        (TABLE.replace("b,", "\x1b[31mb,"), r"must be printable, got '\\x1b\[31mb'"),
        (TABLE.replace("0.25", "0").replace("0.5", "0"), "some layer must take time, all have 0 s at batch size 1"),
        (
            "name,forward_s,backward_s,output_bytes,batch_size\na,1,1,1,1\na,1,,1,2\n",
            "batch size 1 has a backward pass, 2 has none; record the same at both",
        ),
        (TABLE + "c,1\n", "line 4: a row has 6 cells, got 2"),
        (TABLE + 'c,"1', "line 4: .* is CSV"),
        (TABLE.partition("\n")[0], "needs a layer at least"),
        ("name,forward_s,output_bytes,batch_size\na,1,1,0\n", "line 2: batch_size must be a whole number from 1"),
        ("name,forward_s,output_bytes,batch_size\na,1,1,1\nb,1,1,2\n", "has a layer 'a' where 2 has 'b'"),
        ("name,forward_s,output_bytes,batch_size\na,1,1,1\na,1,1,2\na,1,1,2\n", "1 has 1 layers, 2 has 2"),
    ],
)
def test_a_mistake_is_refused_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        read_layer_table(table(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "n_layers"),
    [
        (TABLE + "sum,0.01,0,0,8,16\n", 3),
        (SHORT + "model.embed,1,1\nmodel.layers.0,1,1\nmodel.layers.1,2,1\n", 3),
        (SHORT + "conv,1,1\nconv/bias,1,1\nconv/relu,1,1\n", 3),
    ],
)
def test_a_layer_may_be_called_like_a_sum_or_a_module(text: str, n_layers: int, tmp_path: Path) -> None:
    assert len(read_layer_table(table(tmp_path, text)).at(1)) == n_layers


def test_files_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path, "name,forward_s,output_bytes,batch_size\na,1,1,1\n")
    with pytest.raises(BadInput, match="batch sizes in a column, got 8="):
        read_layer_table(path, None, 8)
    with pytest.raises(BadInput, match="got --profile-details"):
        read_layer_table(path, path)
    with pytest.raises(BadInput, match="must be readable"):
        read_layer_table(tmp_path / "none.csv")
    path.write_bytes(b"name,\xff")
    with pytest.raises(BadInput, match="byte 5: a table of layers is UTF-8 text"):
        read_layer_table(path)


SIZES = "name,forward_s,backward_s,parameter_bytes,output_bytes,batch_size\n"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            ["a,1,1,37632,8,1", "a,4,4,1,64,8"],
            "weights must not depend on the batch size, layer 'a' has 37,632 bytes at 1 and 1 at 8; record one model",
        ),
        (
            ["a,1,1,0,8,1", "a,0.009,1,0,64,8"],
            "forward_s of all layers must be at least 1/100 of that at the smaller one at a larger batch size, got "
            "1 s at batch size 1 and 0.009 s at 8; correct the unit",
        ),
        (["a,1,1,0,8,1", "a,801,1,0,64,8"], "must be at most 100 times as much a sample .*, got 1 s .* and 801 s at 8"),
        (["a,1,1,0,8,1", "a,1,0.009,0,64,8"], "backward_s of all layers must be at least 1/100"),
        (["a,1,1,0,8,1", "b,1,1,0,8,1", "a,1,1,0,64,8", "b,0.001,1,0,64,8"], "forward_s of layer 'b' must be at least"),
        (["a,1,1,0,8,1", "b,1,1,0,8,1", "a,1,1,0,64,8", "b,0,1,0,64,8"], "forward_s of layer 'b' must be at least"),
        (["a,1,1,0,8,1", "b,1,1,0,8,1", "a,1,1,0,64,8", "b,900,1,0,64,8"], "forward_s of layer 'b' must be at most"),
    ],
)
def test_batch_sizes_that_contradict_each_other_are_refused(rows: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        read_layer_table(table(tmp_path, SIZES + "\n".join(rows)))


@pytest.mark.parametrize("times", [("1", "0.011"), ("1", "799"), ("0", "0")])
def test_times_of_batch_sizes_may_be_far_apart(times: tuple[str, str], tmp_path: Path) -> None:
    low, high = times
    rows = f"a,{low},1,5,8,1\nnoise,0.00001,1,5,8,1\na,{high},1,5,64,8\nnoise,0.0000000001,1,5,64,8\n"
    if low == "0":
        rows = rows.replace("0.0000000001", "0.00001")
    assert read_layer_table(table(tmp_path, SIZES + rows)).batch_sizes == (1, 8)


def test_weights_may_have_another_precision_at_another_batch_size(tmp_path: Path) -> None:
    """An engine for another batch size may choose one, layer by layer."""
    rows = "a,1,1,40000,8,1\na,4,4,5000,64,8\n"
    assert read_layer_table(table(tmp_path, SIZES + rows)).batch_sizes == (1, 8)
