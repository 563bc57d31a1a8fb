"""Readers of recorded requests: small files of each format, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.files import traces
from autoauto.records.files.traces import read_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.1805900,396,109
2023-11-16 18:15:48.6805900,879,55
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,API log
"""
PLAIN = "time_s,input_tokens,output_tokens\n0.5,10,1\n1.25,20,2\n"


def written(folder: Path, text: str, name: str = "trace") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_trace_of_azure_is_sorted_and_begins_at_0(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, AZURE))
    assert trace.requests.arrival_s == pytest.approx([0.0, 2.0, 3.5])
    assert trace.requests.input_tokens.tolist() == [374, 879, 396]
    assert trace.requests.output_tokens.tolist() == [44, 55, 109]
    assert trace.requests.cached_tokens.tolist() == [0, 0, 0]
    assert trace.rate_per_s == pytest.approx(2 / 3.5)
    assert trace.means == (550, 69, 0.0)


def test_failed_requests_of_burstgpt_are_left_out(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, BURST))
    assert trace.requests.arrival_s.tolist() == [0.0, 113.0]
    assert trace.requests.output_tokens.tolist() == [18, 276]
    assert trace.n_left_out == 1


def test_a_plain_trace_has_seconds(tmp_path: Path) -> None:
    assert read_trace(written(tmp_path, PLAIN)).requests.arrival_s.tolist() == [0.0, 0.75]


@pytest.mark.parametrize("text", [AZURE, BURST, PLAIN])
@pytest.mark.parametrize("separator", [";", "\t", "; "])
@pytest.mark.parametrize("point", [".", ","])
def test_cells_may_be_separated_as_spreadsheets_do(text: str, separator: str, point: str, tmp_path: Path) -> None:
    other = text.replace(",", separator).replace(".", point)
    expected, trace = (read_trace(written(tmp_path, each)).requests for each in (text, other))
    assert trace.arrival_s.tolist() == expected.arrival_s.tolist()
    assert trace.input_tokens.tolist() == expected.input_tokens.tolist()
    assert trace.output_tokens.tolist() == expected.output_tokens.tolist()


def test_prompts_of_mooncake_find_the_first_blocks_that_were_seen(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 1200, "output_length": 5, "hash_ids": [1, 2, 3]},
        {"timestamp": 2000, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 9]},
        {"timestamp": 3000, "input_length": 1100, "output_length": 5, "hash_ids": [8, 2, 3]},
        {"timestamp": 4000, "input_length": 1024, "output_length": 5, "hash_ids": [1, 2]},
    ]
    trace = read_trace(written(tmp_path, "\n".join(map(json.dumps, rows))))
    assert trace.requests.arrival_s.tolist() == [0.0, 2.0, 3.0, 4.0]
    assert trace.requests.cached_tokens.tolist() == [0, 1024, 0, 1023], "the last token is computed"
    assert trace.blocks == ((1, 2, 3), (1, 2, 9), (8, 2, 3), (1, 2))


def test_a_compressed_file_is_the_same_trace_and_other_content_another(tmp_path: Path) -> None:
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(AZURE.encode()))
    plain = read_trace(written(tmp_path, AZURE))
    assert read_trace(packed) == plain
    assert read_trace(packed).requests.input_tokens.tolist() == plain.requests.input_tokens.tolist()
    assert read_trace(written(tmp_path, AZURE.replace("374", "375"))) != plain


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "a trace must have the columns"),
        ("time_s,input_tokens,output_tokens\n1,2,3\n", "two requests or more at different times, got 1"),
        ("time_s,input_tokens,output_tokens\n1,2,3\n1,2,3\n", "two requests or more at different times, got 2"),
        ("time_s,input_tokens,output_tokens\nsoon,2,3\n", "line 2, time_s: must be seconds or a date"),
        ("time_s,input_tokens,output_tokens\nnan,2,3\n", "line 2, time_s: must be a finite time"),
        ("time_s,input_tokens,output_tokens\n1,0,3\n", "line 2, input_tokens: must be a whole number from 1"),
        ("time_s,input_tokens,output_tokens\n1,2,1.5\n", "line 2, output_tokens: must be a whole number from 0"),
        ("time_s,input_tokens,output_tokens\n1,2\n", "line 2, output_tokens: must be a whole number"),
        ('{"timestamp": 1}\n', "line 1: a line must have timestamp, input_length and output_length"),
        ('{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": 3}\n', "hash_ids must be a list"),
        (
            '{"timestamp": 1, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2, 3]}\n',
            "line 1: hash_ids must be one for every 512 tokens of the prompt, .* got 3 for 1,024",
        ),
        ("time_s,input_tokens,output_tokens,time_s\n1,2,3,4\n", "line 1: .* got 'time_s' twice"),
        ('{"timestamp": ' + "[" * 100_000 + "\n", "line 1: a line must have timestamp"),
        (f"time_s,input_tokens,output_tokens\n1,2,{'3' * 200_000}\n", "a trace must be a CSV file, .*: field larger"),
        ("{not json\n", "line 1: a line must have timestamp"),
    ],
)
def test_what_is_no_trace_is_refused_in_a_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as error:
        read_trace(written(tmp_path, text))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("is_json", [False, True])
def test_a_trace_has_at_most_so_many_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_json: bool
) -> None:
    """Three, of which one failed: a bound counts it, too, since it was read."""
    monkeypatch.setattr(traces, "MAX_REQUESTS", 3)
    rows = [(0, 10, 1), (1, 10, 0), (2, 10, 1), (3, 10, 1)]
    lines = [f"{time},{n_input},{n_output}" for time, n_input, n_output in rows]
    if is_json:
        lines = [
            json.dumps({"timestamp": time, "input_length": n_input, "output_length": n_output})
            for time, n_input, n_output in rows
        ]
    head = [] if is_json else ["time_s,input_tokens,output_tokens"]
    trace = read_trace(written(tmp_path, "\n".join([*head, "", *lines[:3]])))
    assert (len(trace.requests.arrival_s), trace.n_left_out) == (2, 1)
    with pytest.raises(BadInput, match=r"a trace has at most 3 requests, .* has more; try a part of it"):
        read_trace(written(tmp_path, "\n".join([*head, *lines])))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a file that can be read"):
        read_trace(tmp_path / "nothing")
    with pytest.raises(BadInput, match="a file that can be read"):
        read_trace(tmp_path)
    damaged = tmp_path / "damaged.gz"
    damaged.write_bytes(gzip.compress(AZURE.encode())[:30])
    with pytest.raises(BadInput, match="a file that can be read"):
        read_trace(damaged)
    damaged.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="a text in UTF-8"):
        read_trace(damaged)
