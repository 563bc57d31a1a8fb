"""Random mutations of all that people give to autoauto: no traceback, no hang, and memory within bounds.

    python studies/mutations.py [--n 3000] [--kinds command-lines,toml,...] [--seed 0] [--jobs 2] [--only N]

A mutation has a kind, a seed and a number, which decide it. Each runs in a process of its own, forked from one that has
run every command before, with 2 GiB of address space and 10 s of CPU time (a busy machine does not count). It
passes when the command ends as documented: with 0, or with 2 or 3 and one line that says why. What does not is listed
with the command that runs it again; with `--only` the mutated command line and what it printed are shown, too.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import resource
import select
import shlex
import shutil
import sqlite3
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a thread would not be in the forked processes

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper

from autoauto.cli.main import build_parser, main
from autoauto.cli.options.model import open_flow
from autoauto.cli.options.values import at_most
from autoauto.cli.output.lines import warn
from autoauto.records.errors import AutoautoError
from autoauto.records.installation import data_dir

TIME_LIMIT_S, WALL_LIMIT_S, ADDRESS_SPACE_BYTES = 10, 60.0, 2 * 2**30
ODD_VALUES: list[Any] = [
    *(None, True, -1, 0, 1.5, 1e300, 10**9, 10**30, -(10**30), "", "x", "9" * 40, "\n", "\x1b[31m", "\ud7ff\u2028"),
    *("nan", "inf", "-1", [], {}, [[]], [{}], {"a": 1}, [1, -1], ["x"]),
]
ODD_WORDS = (
    *("", " ", "-", "--", "x", "0", "-1", "1", "2", "3", "7", "1.5", "1e300", "1e-300", "nan", "inf", "-inf", "1e9"),
    *("65537", "1000000", "1000000000", "9" * 30, "1:1000000000", "1:4", "4:1", "0:0", "1,2,4", ",", ":", "1,,2"),
    *("\u0663", "\xb2", "\x1b[31m", "\u202e", "\ud7ff", "on", "off", "on,off", "/dev/null", ".", "/", "x" * 5_000),
    *("n_ipu <= 2", "latency_s <= 1e-9", "1 / 0 < 1", "(" * 100, "training", "gpipe", "phased", "tiny.onnx"),
)
ODD_INTEGERS = (0, 1, -1, 2, 7, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**62, 2**63 - 1, -(2**63))
NEVER_MUTATED = frozenset({"dashboard", "worker", "host"})
"""Commands and a target that wait for others, or take long as intended."""

PROFILED = ("--devices", "4", "--device-memory-gib", "16", "--link-gb-per-s", "25", "--n-ipu", "2")
CLUSTERS = ("bow-2000", "bow-pod16", "seed-2-ipu", "bow-mk2")
SEARCH_CONFIG = """
model = "tiny.onnx"
cluster = "bow-2000"
target = "ipu"
objective = "throughput"
constraints = ["latency_s <= 0.5", "n_ipu * batch_size <= 64"]
max_latency_s = 1.5
precision = "fp16"
period = "barrier"
headroom = 0.1
n_measurements = 4
method = "guided"
study_name = "toml"
[knobs]
n_ipu = [1, 2]
replicas = { fixed = 1 }
memory_proportion = { grid = [0.3, 0.6] }
batch_size = { from = 1, to = 9, step = 2 }
"""


class Case(NamedTuple):
    """A command and the files that it reads."""

    argv: tuple[str, ...]
    files: dict[str, bytes] = {}  # noqa: RUF012 (never changed)


class Outcome(NamedTuple):
    """How a command ended; `verdict` is empty where that is as documented."""

    verdict: str
    code: int
    output: str
    peak_bytes: int


# ------------------------------------------------------------------------------------------------ mutations


def mutated_bytes(content: bytes, random: Random) -> bytes:
    """The content with one to four bytes or ranges removed, inserted or replaced."""
    mutated = bytearray(content)
    for _ in range(random.randint(1, 4)):
        start = random.randrange(len(mutated) + 1)
        match random.randrange(4):
            case 0:
                del mutated[start:]
            case 1:
                del mutated[start : start + random.randint(1, 8)]
            case 2:
                mutated[start:start] = random.randbytes(random.randint(1, 3))
            case _:
                mutated[start : start + 1] = random.choice(b'0-9",;{}[]\n\t\x00e.').to_bytes(1, "big")
    return bytes(mutated)


def mutated_structure(document: Any, random: Random) -> Any:
    """The document with one value replaced, removed or doubled."""
    parent = random.choice(list(_containers(document)))
    key = random.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
    match random.randrange(4):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, list):
            parent.insert(key, parent[key])
        case _:
            parent[key] = random.choice(ODD_VALUES)
    return document


def _containers(document: Any) -> Iterator[Any]:
    if isinstance(document, dict | list) and document:
        yield document
        for value in document.values() if isinstance(document, dict) else document:
            yield from _containers(value)


def mutated_json(content: bytes, random: Random) -> bytes:
    """Every other time the structure, else bytes."""
    if random.random() < 0.5 and content.lstrip()[:1] in (b"[", b"{"):
        return json.dumps(mutated_structure(json.loads(content), random)).encode()
    return mutated_bytes(content, random)


def mutated_toml(content: bytes, random: Random) -> bytes:
    """A value replaced, a line removed, doubled or moved, or bytes."""
    lines = content.decode().split("\n")
    index = random.randrange(len(lines))
    match random.randrange(6):
        case 0:
            return mutated_bytes(content, random)
        case 1:
            del lines[index]
        case 2:
            lines.insert(random.randrange(len(lines)), lines[index])
        case _:
            index = random.choice([number for number, line in enumerate(lines) if "=" in line])
            value = random.choice([value for value in ODD_VALUES if value is not None])
            text = json.dumps(value).replace("{}", "{ }").replace('{"a": 1}', "{ a = 1 }").replace("\\ud7ff", "\ud7ff")
            lines[index] = f"{lines[index].partition('=')[0]}= {text}"
    return "\n".join(lines).encode()


def mutated_numbers(content: bytes, random: Random) -> bytes:
    """One to three numbers of a TOML file that are extreme or none, or a key with many dots or brackets."""
    lines = content.decode().split("\n")
    if random.random() < 0.1:
        depth = random.choice([2, 100, 5_000])
        lines.insert(random.randrange(len(lines)), random.choice(["a" + ".a" * depth + " = 1", "a = " + "[" * depth]))
        return "\n".join(lines).encode()
    for _ in range(random.randint(1, 3)):
        spots = [(i, match) for i, line in enumerate(lines) for match in _NUMBER.finditer(line)]
        index, match = random.choice(spots)
        lines[index] = f"{lines[index][: match.start(1)]}{random.choice(EXTREMES)}{lines[index][match.end(1) :]}"
    return "\n".join(lines).encode()


_NUMBER = re.compile(r"[=\[,]\s*([+-]?\d[\d_.e+-]*)")
EXTREMES = (
    *(
        "0",
        "-0",
        "-1",
        "1",
        "2",
        "0.0",
        "-0.0",
        "1e-9",
        "1e-300",
        "5e-324",
        "1e9",
        "1e18",
        "1e300",
        "1.7e308",
        "-1e308",
    ),
    *("nan", "inf", "-inf", "1e999", "65_536", "65_537", "4_294_967_296", "9_007_199_254_740_993", "1e400", "true"),
    *("9_223_372_036_854_775_807", "9_223_372_036_854_775_808", "-9_223_372_036_854_775_808", "9" * 400, "0x7fff"),
    *("0.1", "0.999999999999999999", "1.0000000001", '"1"', "1979-05-27", "[1, 2]", "{ a = 1 }"),
)


def mutated_arrays(content: bytes, random: Random) -> bytes:
    """The headers or the data of one array changed, arrays renamed, removed, doubled or added, or bytes."""
    if random.random() < 0.2:
        return mutated_bytes(content, random)
    with ZipFile(io.BytesIO(content)) as archive:
        members = [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
    index = random.randrange(len(members))
    name, member = members[index]
    odd = (random.randint(0, 9), random.choice(ODD_INTEGERS), 2**40, 10**30)
    match random.randrange(7):
        case 0:
            members[index] = name, mutated_bytes(member, random)
        case 1 | 2:  # the length of the header stays, so that it is read
            head = member[:128].decode("latin-1")
            numbers = list(re.finditer(r"\d+", head[10:]))
            chosen = random.choice(numbers)
            text = str(random.choice(odd))
            changed = f"{head[: 10 + chosen.start()]}{text}{head[10 + chosen.end() :]}"
            members[index] = name, _of_length(changed, 128).encode("latin-1") + member[128:]
        case 3:
            dtype = random.choice(["<f8", "<i4", "|O", ">f4", "|b1", "<U9", "|V7", "<M8[s]", "<c16", "<f2", "|S0"])
            members[index] = name, member.replace(b"<f4", dtype.encode(), 1)
        case 4:
            del members[index]
        case 5:
            members.append((random.choice([name, ".npy", "y.npy", "x", "../x.npy", "\u202e.npy", "x" * 5_000]), member))
        case _:
            shape = random.choice([(), (0,), (2, 3, 8), (1, 3, 8, 8), (7, 3, 8, 8), (2, 3, 8, 9), (1,) * 32])
            array = np.full(shape, random.choice([np.nan, np.inf, 0.0, 1e38]), random.choice(["f4", "f8", "c16"]))
            written = io.BytesIO()
            np.save(written, array)
            members[index] = name, written.getvalue()
    packed = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two members of one name
        with ZipFile(packed, "w", random.choice([ZIP_STORED, ZIP_DEFLATED])) as archive:
            for name, member in members:
                archive.writestr(name, member)
    return packed.getvalue()


def _of_length(text: str, length: int) -> str:
    return text[: length - 1].rstrip("\n").ljust(length - 1) + "\n"


def mutated_command_line(
    argv: Sequence[str], random: Random, options: Mapping[str, Sequence[argparse.Action]]
) -> tuple[str, ...]:
    """Words replaced, removed, doubled, exchanged or misspelt, and options of the command inserted."""
    words = list(argv)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        index = random.randrange(len(words))
        word = random.choice(ODD_WORDS)
        match random.randrange(7):
            case 0:
                del words[index]
            case 1:
                words.insert(index, words[index])
            case 2:
                other = random.randrange(len(words))
                words[index], words[other] = words[other], words[index]
            case 3:
                words[index] = mutated_bytes(words[index].encode(), random).decode(errors="replace").replace("\0", "")
            case 4:
                words[index] = word
            case _:
                words += _option(random.choice(options[argv[0]]), random)
        if not words:
            break
    return tuple(words)


def _option(option: argparse.Action, random: Random) -> list[str]:
    """An option, mostly with a value that its reader takes."""
    value = random.choice(ODD_WORDS)
    if option.choices is not None:
        value = str(random.choice(list(option.choices)))
    elif random.random() < 0.8:
        value = next((word for word in random.sample(ODD_WORDS, len(ODD_WORDS)) if _reads(option, word)), value)
    return [option.option_strings[-1], *([value] if option.nargs != 0 or random.random() < 0.1 else [])]


def _reads(option: argparse.Action, word: str) -> bool:
    try:
        return not callable(option.type) or option.type(word) is not None
    except (ValueError, argparse.ArgumentTypeError):
        return False


def mutated_onnx(content: bytes, random: Random) -> bytes:
    """One or two fields anywhere in the model changed, or bytes."""
    if random.random() < 0.4:
        return mutated_bytes(content, random)
    model = onnx.load_model_from_string(content)
    for _ in range(random.randint(1, 2)):
        _mutate_message(random.choice(list(_messages(model))), random)
    return bytes(model.SerializeToString())


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in value if field.is_repeated else [value]:
                yield from _messages(part)


def _mutate_message(message: Message, random: Random) -> None:
    """Change one field of a message: clear it, or double, remove, exchange or replace values."""
    field = random.choice(random.choice([message.DESCRIPTOR.fields, [f for f, _ in message.ListFields()] or [None]]))
    if field is None:
        return
    if random.random() < 0.2:
        message.ClearField(field.name)
    elif not field.is_repeated:
        if field.type == field.TYPE_MESSAGE:
            getattr(message, field.name).SetInParent()
        else:
            setattr(message, field.name, _odd_value(field, random))
    else:
        _mutate_list(getattr(message, field.name), field, random)


def _mutate_list(values: Any, field: Any, random: Random) -> None:
    index = random.randrange(len(values)) if values else 0
    is_message = field.type == field.TYPE_MESSAGE
    match random.randrange(4):
        case 0 if values:
            del values[index]
        case 1 if values:
            values.extend([values[index]] * random.choice([1, 1, 1, 100_000 if not is_message else 100]))
        case 2 if values and not is_message:
            values[index] = _odd_value(field, random)
        case _ if is_message:
            values.add()
        case _:
            values.append(_odd_value(field, random))


def _odd_value(field: Any, random: Random) -> Any:
    if field.type == field.TYPE_STRING:
        return random.choice(["", "x", "y", "w", "Conv", "Gemm", "ai.onnx", "\x1b[31m", "\u202e", "N", "x" * 5_000])
    if field.type == field.TYPE_BYTES:
        return random.choice([b"", b"\xff\xfe", b"\x00" * 7, b"SAME_UPPER", random.randbytes(64)])
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return random.choice([0.0, -1.0, 1e30, float("nan"), float("inf")])
    if field.type == field.TYPE_ENUM:
        return random.choice([value.number for value in field.enum_type.values])
    wide = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64)
    lowest = 0 if field.cpp_type == field.CPPTYPE_UINT64 else -(2**63 if wide else 2**31)
    highest = 2**63 - 1 if wide else 2**31 - 1
    return random.choice([value for value in ODD_INTEGERS if lowest <= value <= highest])


def mutated_database(content: bytes, random: Random) -> bytes:
    """One or two columns of tables overwritten in one row or in all, rows deleted, or bytes."""
    if random.random() < 0.2:
        return mutated_bytes(content, random)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trials.db"
        path.write_bytes(content)
        with contextlib.closing(sqlite3.connect(path)) as database:
            for _ in range(random.randint(1, 2)):
                with contextlib.suppress(sqlite3.Error):  # an index or a rule of the table refuses the value
                    _edit_table(database, random)
            database.commit()
        return path.read_bytes()


def _edit_table(database: sqlite3.Connection, random: Random) -> None:
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    table = random.choice(tables)
    rows = [row for (row,) in database.execute(f"SELECT rowid FROM {table} ORDER BY rowid")]
    where = f"WHERE rowid = {random.choice(rows)}" if rows and random.random() < 0.5 else ""
    if random.random() < 0.2:
        database.execute(f"DELETE FROM {table} {where}")
        return
    column = random.choice([entry[1] for entry in database.execute(f"PRAGMA table_info({table})")])
    odd = [value for value in ODD_VALUES if not isinstance(value, list | dict) and "\ud7ff" not in str(value)]
    value = random.choice([*odd, *(json.dumps(each) for each in ODD_VALUES)])
    value = value if not isinstance(value, int) or abs(value) < 2**63 else float(value)
    database.execute(f"UPDATE {table} SET {column} = ? {where}", (value,))


def mutated_table(content: bytes, random: Random) -> bytes:
    """A cell of a CSV replaced, removed or doubled, or bytes."""
    if random.random() < 0.3:
        return mutated_bytes(content, random)
    rows = [line.split(",") for line in content.decode().split("\n")]
    row = random.choice(rows)
    index = random.randrange(len(row))
    odd = ("", "x", "0F0", "1B0", "9F9", "0W0", "99999F0", "0F" + "9" * 30, "0BW0", "0UNSHARD", "(0F0;1B0)OVERLAP_F_B")
    match random.randrange(4):
        case 0:
            del row[index]
        case 1:
            row.insert(index, row[index])
        case 2:
            rows.insert(random.randrange(len(rows)), list(row))
        case _:
            row[index] = random.choice(odd)
    return "\n".join(map(",".join, rows)).encode()


# --------------------------------------------------------------------------------------------------- cases


def small_models() -> dict[str, bytes]:
    """Models of a few operators each: convolutions, an attention with computed shapes, and what is rarer."""
    square = numpy_helper.from_array(_weights(16, 16), "w")
    kernel, bias = numpy_helper.from_array(_weights(8, 3, 3, 3), "k"), numpy_helper.from_array(_weights(8), "b")
    heads = numpy_helper.from_array(np.array([0, 0, 4, 4]), "heads")
    node = helper.make_node
    networks = {
        "tiny": (
            [
                node("Conv", ["x", "k", "b"], ["c"], "conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
                node("Relu", ["c"], ["r"], "relu"),
                node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
                node("GlobalAveragePool", ["p"], ["g"], "mean"),
                node("Flatten", ["g"], ["y"], "flatten"),
            ],
            (2, 3, 8, 8),
            [kernel, bias],
        ),
        "attention": (
            [
                node("MatMul", ["x", "w"], ["q"], "query"),
                node("Reshape", ["q", "heads"], ["h"], "heads"),
                node("Transpose", ["h"], ["t"], "turn", perm=[0, 2, 1, 3]),
                node("Transpose", ["h"], ["u"], "turn.1", perm=[0, 2, 3, 1]),
                node("MatMul", ["t", "u"], ["s"], "scores"),
                node("Softmax", ["s"], ["p"], "softmax", axis=-1),
                node("MatMul", ["p", "t"], ["m"], "mix"),
                node("Shape", ["x"], ["shape"], "shape"),
                node("Transpose", ["m"], ["n"], "back", perm=[0, 2, 1, 3]),
                node("Reshape", ["n", "shape"], ["y"], "join"),
            ],
            ("N", 4, 16),
            [square, heads],
        ),
        "rare": (
            [
                node("Constant", [], ["a"], "constant", value_floats=[0.5, 1.5]),
                node("Split", ["x"], ["l", "r"], "split", axis=1, num_outputs=2),
                node("Gemm", ["l", "w"], ["g"], "gemm", transB=1, alpha=0.5),
                node("LayerNormalization", ["g", "scale"], ["n"], "norm", axis=-1),
                node("Concat", ["n", "r"], ["c"], "join", axis=1),
                node("Resize", ["c", "", "a"], ["z"], "resize", mode="nearest"),
                node("Cast", ["z"], ["y"], "cast", to=TensorProto.FLOAT16),
            ],
            (4, 32),
            [square, numpy_helper.from_array(_weights(16), "scale")],
        ),
    }
    return {f"{name}.onnx": _model(name, *network) for name, network in networks.items()}


def _weights(*shape: int) -> Any:
    return np.full(shape, 0.1, np.float32)


def _model(name: str, nodes: Any, shape: Sequence[int | str], stored: Any) -> bytes:
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], [onnx.ValueInfoProto(name="y")]
    kind = TensorProto.FLOAT16 if name == "rare" else TensorProto.FLOAT
    ends[1][0].CopyFrom(helper.make_tensor_value_info("y", kind, None))
    graph = helper.make_graph(nodes, name, *ends, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return bytes(model.SerializeToString())


def command_lines() -> list[Case]:
    """Every command that ends by itself, with the options that it mostly has."""
    knobs = ("--n-ipu", "2", "--batch-size", "4", "--memory-proportion", "0.6")
    lines = (
        ("search", "tiny.onnx", "--n-ipu", "1,2", "--batch-size", "1:4", "--study-name", "first"),
        ("search", "tiny.onnx", "--batch-size", "1:4", "--n-measurements", "3", "--method", "tpe", "--json"),
        ("search", "resnet50", "--dry-run", "--constraint", "latency_s <= 0.02"),
        ("plan", "tiny.onnx", *knobs),
        ("plan", "resnet50", *knobs, "--k-best", "2"),
        ("predict", "attention.onnx", *knobs, "--replicas", "2", "--json"),
        ("measure", "tiny.onnx", *knobs),
        ("compare", "tiny.onnx", *knobs, "--precision", "fp32"),
        ("profile", "tiny.onnx", "--batch-size", "2", "--output", "profile.json"),
        ("phased", "tiny.onnx", "--batch-size", "2", "--steps", "4"),
        ("export", "tiny.onnx", "--to", "onnx", "--output", "exported", *knobs),
        ("schedule", "--schedule", "1f1b", "--stages", "4", "--n-micro-batches", "8", "--forward-cycles", "1,2,1,1"),
        ("schedule", "--schedule", "interleaved", "--stages", "2", "--chunks", "2", "--n-micro-batches", "4", "--json"),
        ("schedule", "--schedule", "zb1p", "--stages", "3", "--n-micro-batches", "6", "--max-in-flight", "4"),
        ("report", "first"),
        ("explain", "first"),
        ("trials", "first", "--top", "3"),
        ("models",),
        ("clusters", "--upstream", "seed-2-ipu"),
    )
    return [Case(line, small_models()) for line in lines]


def toml_files() -> list[Case]:
    """Clusters and searches."""
    listed = "\n".join(
        [
            'name = "listed"\ntarget = "ipu"\ntopology = "all-to-all"',
            *['[[devices]]\nname = "d"\nclock_hz = 1e9\nmemory_bytes = 900_000_000\nn_tiles = 1_000'] * 2,
            *["[[receive_links]]\nbytes_per_s = 1e9\nidle_cycles = 10"] * 2,
            *["[[send_links]]\nbytes_per_s = 1e9\nidle_cycles = 10"] * 2,
        ]
    ).replace("n_tiles = 1_000", "n_tiles = 1_000\ntile_memory_bytes = 600_000")
    files = [(data_dir() / "clusters" / f"{name}.toml").read_bytes() for name in CLUSTERS]
    plan = ("plan", "tiny.onnx", "--cluster", "file.toml")
    search = ("search", "--config", "file.toml", "--dry-run")
    models = small_models()
    clusters = [Case((*plan, "--n-ipu", "2"), models | {"file.toml": file}) for file in [*files, listed.encode()]]
    clusters.append(Case((*search[:1], "tiny.onnx", "--cluster", *search[2:]), models | {"file.toml": files[1]}))
    return [*clusters, *[Case(search, models | {"file.toml": SEARCH_CONFIG.encode()})] * 5]


PIPELINE = "pipeline.json"
PROFILED_KINDS = """
name = "kinds"
target = "profile"
[[kinds]]
n_devices = 2
speed = 2.0
device = { name = "fast", memory_bytes = 17_179_869_184 }
device_link = { bytes_per_s = 25e9, idle_cycles = 10 }
host_link = { bytes_per_s = 25e9, idle_cycles = 10 }
[[kinds]]
n_devices = 2
device = { name = "slow", memory_bytes = 17_179_869_184, clock_hz = 2e9 }
device_link = { bytes_per_s = 25e9, idle_cycles = 10 }
host_link = { bytes_per_s = 25e9, idle_cycles = 10 }
"""


def toml_numbers() -> list[Case]:
    """Clusters and searches with numbers, also those of a profile for devices of unlike speed."""
    blocks = (data_dir() / "profiles" / "recorded" / "blocks.csv").read_bytes()
    line = ("plan", "--profile", "blocks.csv", "--profile-format", "csv", "--cluster", "file.toml", "--n-ipu", "3")
    files = {"blocks.csv": blocks, "file.toml": PROFILED_KINDS.encode()}
    return [*toml_files()[:-4], Case(line, files), Case((*line[:-1], "4", "--json"), files)]


def inputs() -> list[Case]:
    """Inputs of a model for the host."""
    written = io.BytesIO()
    np.savez(written, x=np.ones((4, 3, 8, 8), np.float32))
    line = ("measure", "tiny.onnx", "--target", "host", "--batch-size", "2", "--inputs", "inputs.npz")
    return [Case(line, small_models() | {"inputs.npz": written.getvalue()})]


def folders() -> list[Case]:
    """The `pipeline.json` of an exported folder of two stages."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        Path("tiny.onnx").write_bytes(small_models()["tiny.onnx"])
        knobs = ("--n-ipu", "2", "--batch-size", "4")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            main(("export", "tiny.onnx", "--to", "onnx", "--output", "made", *knobs))
        files = {path.name: path.read_bytes() for path in Path("made").iterdir()}
    # As of a plan for this machine, whose measurement would take longer and not repeat itself.
    files[PIPELINE] = files[PIPELINE].replace(b'"intra_op_threads": 0', b'"intra_op_threads": 1')
    return [Case(("serve", ".", "--listen", "127.0.0.1:0"), files)]


def profiles() -> list[Case]:
    """Files of every program whose profiles are read; of traces the first events, so that a mutation hits one."""
    recorded = data_dir() / "profiles" / "recorded"
    plan = ("plan", *PROFILED, "--profile")
    cases = []
    for name, size, first, second in (
        ("csv", "", "blocks.csv", None),
        ("onnxruntime", "", "squeezenet.onnxruntime.json", "squeezenet.memory.csv"),
        ("torch", "32=", "blocks-32.torch.json", None),
        ("tensorrt", "8=", "engine.profile.json", "engine.layers.json"),
    ):
        files = {file: small_trace((recorded / file).read_bytes()) for file in (first, second) if file}
        details = ("--profile-details", f"{size}{second}") if second else ()
        cases.append(Case((*plan, f"{size}{first}", "--profile-format", name, *details), files))
    keras = {name: json.dumps(content).encode() for name, content in _auto_pipeline_files().items()}
    cases.append(Case(("plan", "--model-info", "model.json", "--cluster-info", "cluster.json"), keras))
    return cases


def _auto_pipeline_files() -> dict[str, Any]:
    """A profile and a cluster in the format of [auto-pipeline]."""
    memory = {"shared": {}, "exclusive": {"code": 900}, "inputs": 64, "outputs": 64, "curActivation": 0}
    memory |= {"maxTemporary": 100, "curCarryOver": 0}
    layer = {"cycle": {"forward": 1_000, "backward": 0, "total": 1_000}, "memory": memory}
    model = {"layerName": ["a", "b", "c"], "layerType": ["dense"] * 3, "layerInfo": [layer] * 3}
    link = {"sendGBps": 10, "sendIdleCycle": 10, "recvGBps": 10, "recvIdleCycle": 10}
    cluster = {"clock": 1e9, "memory": 10_000, "connection": [link, link]}
    return {"model.json": model, "cluster.json": cluster}


def small_trace(content: bytes, n_events: int = 60) -> bytes:
    """A trace with fewer events, so that a mutation hits those that are read; other files as they are."""
    document = json.loads(content) if content.lstrip()[:1] in (b"[", b"{") else None
    if isinstance(document, list):
        last = [event for event in document[n_events:] if event.get("name") == "model_run"]
        return json.dumps([*document[:n_events], *last]).encode()
    if isinstance(document, dict) and "traceEvents" in document:
        events = document["traceEvents"]
        wanted = [event for event in events if event.get("cat") in ("user_annotation", "fwdbwd")]
        return json.dumps({"traceEvents": [*wanted, *events[: 10 * n_events : 3]]}).encode()
    return content


def onnx_files() -> list[Case]:
    """Small models."""
    models = small_models()
    return [Case(("plan", name, "--n-ipu", "2"), {name: content}) for name, content in models.items()]


def function_files() -> list[Case]:
    """Models with functions that call each other, also in the branches of an If."""
    node, sets = helper.make_node, [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in (("x", (2, 4)), ("y", ()))
    ]
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(op, ["a"], [name], domain=domain)], name, [], [onnx.ValueInfoProto(name=name)]
        )
        for name, op, domain in (("then", "f0", "local"), ("else", "Relu", ""))
    }
    chosen = [
        node("ReduceSum", ["a"], ["s"], keepdims=0),
        node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
        node("If", ["c"], ["b"], **branches),
    ]
    bodies = [[node("Relu", ["a"], ["b"])], chosen]
    for index in range(2, 6):
        called = [
            node(f"f{index - step}", [read], [written], domain="local")
            for step, read, written in ((1, "a", "c"), (2, "c", "b"))
        ]
        bodies.append(called)
    functions = [helper.make_function("local", f"f{i}", ["a"], ["b"], body, sets) for i, body in enumerate(bodies)]
    graph = helper.make_graph(
        [node("f5", ["x"], ["y"], domain="local")], "functions", ends[0], [onnx.ValueInfoProto(name="y")]
    )
    graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    model = helper.make_model(graph, opset_imports=sets, functions=functions, ir_version=8)
    return [Case(("plan", "functions.onnx", "--n-ipu", "1"), {"functions.onnx": bytes(model.SerializeToString())})]


def schedules() -> list[Case]:
    """Schedules of PyTorch, with and without split backward passes."""
    whole = b"0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1"
    split = b"0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1B1"
    line = ("schedule", "--from-csv", "order.csv")
    return [Case(line, {"order.csv": whole}), Case((*line, "--json"), {"order.csv": split})]


def databases() -> list[Case]:
    """The database of a study, which is searched on or read."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        Path("tiny.onnx").write_bytes(small_models()["tiny.onnx"])
        rest = ("--storage", "sqlite:///trials.db")
        search = ("search", "tiny.onnx", "--batch-size", "1:3", "--n-measurements", "3", "--study-name", "first", *rest)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            main(search)
        with contextlib.closing(sqlite3.connect("trials.db")) as database:
            database.execute("VACUUM INTO 'whole.db'")  # without a log beside it
        files = {"tiny.onnx": Path("tiny.onnx").read_bytes(), "trials.db": Path("whole.db").read_bytes()}
    reads = [(command, "first", *rest) for command in ("report", "explain", "trials")]
    return [Case(line, files) for line in (search, *reads, ("studies", *rest))]


CASES: dict[str, Callable[[], list[Case]]] = {
    "command-lines": command_lines,
    "toml": toml_files,
    "toml-numbers": toml_numbers,
    "inputs": inputs,
    "folders": folders,
    "profiles": profiles,
    "onnx": onnx_files,
    "functions": function_files,
    "schedules": schedules,
    "databases": databases,
}
MUTATE_FILE = {
    "toml": mutated_toml,
    "toml-numbers": mutated_numbers,
    "inputs": mutated_arrays,
    "folders": mutated_json,
    "profiles": mutated_json,
    "onnx": mutated_onnx,
    "functions": mutated_onnx,
    "schedules": mutated_table,
    "databases": mutated_database,
}
MUTATED = {
    "toml": "file.toml",
    "toml-numbers": "file.toml",
    "inputs": "inputs.npz",
    "folders": PIPELINE,
    "databases": "trials.db",
}
"""The file that is mutated, where it is not any of a case."""


def mutated(kind: str, cases: Sequence[Case], seed: int, number: int) -> Case:
    """Mutation `number` of a kind."""
    random = Random(f"{kind} {seed} {number}")
    case = cases[number % len(cases)]
    if kind == "command-lines":
        return case._replace(argv=_harmless(mutated_command_line(case.argv, random, _options()), case.argv))
    name = MUTATED.get(kind) or random.choice(list(case.files))
    return case._replace(files=case.files | {name: MUTATE_FILE[kind](case.files[name], random)})


def _harmless(argv: tuple[str, ...], original: tuple[str, ...]) -> tuple[str, ...]:
    """The command line, or where it would wait for others or reach the network the original one."""
    waits = NEVER_MUTATED.intersection(argv) or any("://" in word or word.startswith("--ex") for word in argv)
    return original if waits else argv


@cache
def _options() -> Mapping[str, Sequence[argparse.Action]]:
    """The options of every command."""
    (commands,) = (action for action in build_parser()._actions if isinstance(action.choices, dict))
    parsers = dict(commands.choices or {})
    return {name: [action for action in parser._actions if action.option_strings] for name, parser in parsers.items()}


# ----------------------------------------------------------------------------------------------------- runs


def run_case(case: Case, folder: Path) -> Outcome:
    """Run a command in a process of its own in an empty folder."""
    work = Path(tempfile.mkdtemp(dir=folder))
    for name, content in case.files.items():
        (work / name).write_bytes(content)
    shutil.copytree(folder / "studies", work / "studies")
    log = folder / f"{work.name}.txt"
    child = os.fork()
    if not child:
        _run_limited(case.argv, work, log)
    verdict = _waited(child)
    _, status, usage = os.wait4(child, 0)
    output = log.read_text(encoding="utf-8", errors="backslashreplace")
    log.unlink()
    shutil.rmtree(work, ignore_errors=True)
    code = os.waitstatus_to_exitcode(status)
    return Outcome(verdict or verdict_of(code, output), code, output, usage.ru_maxrss * 1024)


def run_command(argv: Sequence[str]) -> int:
    """Run a command; where it would serve or measure, only what it reads before that."""
    if argv[0] != "serve" and "--inputs" not in argv:
        return main(argv)
    from autoauto.serve.artifact import Artifact

    try:
        if argv[0] == "serve":
            model = Artifact(Path(argv[1])).model
            json.dumps(model.metadata("1"))
        else:
            open_flow(build_parser().parse_args(argv))
    except AutoautoError as error:
        warn(str(error))
        return error.exit_code
    return 0


def _run_limited(argv: Sequence[str], work: Path, log: Path) -> None:
    """The forked process: run the command within its limits, with all output in a file."""
    code = 1
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in (1, 2):
            os.dup2(descriptor, number)
        sys.stdout = output = io.StringIO()
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace", write_through=True)
        os.chdir(work)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (TIME_LIMIT_S, TIME_LIMIT_S + 1))
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
        try:
            code = run_command(argv)
        except SystemExit as end:  # after --help
            code = end.code if isinstance(end.code, int) else 1
        if not all(line.isprintable() for line in output.getvalue().split("\n")):
            print(f"unprintable: {output.getvalue()!r}", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)


def _waited(child: int) -> str:
    """Wait until the process has ended; "hang" where it had to be ended."""
    descriptor = os.pidfd_open(child)
    ready, _, _ = select.select([descriptor], [], [], WALL_LIMIT_S)
    os.close(descriptor)
    if ready:
        return ""
    os.kill(child, 9)
    return "hang"


def verdict_of(code: int, errors: str) -> str:
    """What is wrong with how a command ended."""
    if "MemoryError" in errors or "bad_alloc" in errors or "Cannot allocate memory" in errors:
        return "memory"
    if code in (-9, -24):  # SIGKILL or SIGXCPU by the limit of CPU time
        return "hang"
    if "unprintable: " in errors:
        return "unprintable"
    if code not in (0, 2, 3):
        return "traceback" if "Traceback" in errors else f"exit code {code}"
    lines = errors.removesuffix("\n").split("\n")
    reasons = [line for line in lines if line.startswith("autoauto: ")]
    if code and (not reasons or lines[-1] != reasons[-1] or len(lines) != len(reasons)):
        return "no line"
    return "" if all(line.isprintable() for line in lines) else "unprintable"


def warm_up(cases: Sequence[Case], folder: Path) -> None:
    """Run every command unchanged, so that forked processes have their libraries and caches.

    Raises:
        SystemExit: one fails, so that its mutations would show nothing.
    """
    work = folder / "warm"
    (work / "studies").mkdir(parents=True, exist_ok=True)
    for case in cases:
        for name, content in case.files.items():
            (work / name).write_bytes(content)
        errors = io.StringIO()
        with contextlib.chdir(work), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            code = run_command(case.argv)
        if code:
            raise SystemExit(f"{shlex.join(case.argv)}: {code}: {errors.getvalue()}")
    shutil.copytree(work / "studies", folder / "studies", dirs_exist_ok=True)


def run_share(kind: str, cases: Sequence[Case], seed: int, numbers: Sequence[int], folder: Path) -> dict[int, Outcome]:
    """Run some mutations one after the other."""
    return {number: run_case(mutated(kind, cases, seed, number), folder) for number in numbers}


def run_kind(kind: str, cases: Sequence[Case], seed: int, n: int, jobs: int, folder: Path) -> dict[int, Outcome]:
    """Run `n` mutations of a kind, in `jobs` processes."""
    import multiprocessing

    shares = [range(first, n, jobs) for first in range(jobs)]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        parts = pool.starmap(partial(run_share, kind, cases, seed), [(share, folder) for share in shares])
    return {number: outcome for part in parts for number, outcome in part.items()}


def show_one(kind: str, cases: Sequence[Case], seed: int, number: int, folder: Path) -> None:
    """Print one mutated command line, its output, and where its files are."""
    case = mutated(kind, cases, seed, number)
    copies = Path(tempfile.mkdtemp(prefix="mutation-"))
    for name, content in case.files.items():
        (copies / name).write_bytes(content)
    outcome = run_case(case, folder)
    print(f"cd {copies}; autoauto {shlex.join(case.argv)!r}"[:2_000])
    print(f"{outcome.verdict or 'as documented'}, exit code {outcome.code}\n{outcome.output}")


def main_study(args: argparse.Namespace) -> int:
    """Run the mutations and print how they ended."""
    n_failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["AUTOAUTO_CACHE_DIR"] = str(folder / "cache")
        print(f"{'kind':<14} {'mutations':>9} {'done':>6} {'refused':>8} {'failed':>7} {'most memory':>12}  verdicts")
        for kind in args.kinds.split(","):
            cases = CASES[kind]()
            warm_up(cases, folder)
            if args.only is not None:
                show_one(kind, cases, args.seed, args.only, folder)
                continue
            outcomes = run_kind(kind, cases, args.seed, args.n, args.jobs, folder)
            failed = {number: outcome for number, outcome in outcomes.items() if outcome.verdict}
            n_done = sum(not outcome.code for outcome in outcomes.values())
            peak = max(outcome.peak_bytes for outcome in outcomes.values()) / 2**20
            verdicts = ", ".join(f"{n} {verdict}" for verdict, n in Counter(o.verdict for o in failed.values()).items())
            n_refused = len(outcomes) - n_done - sum(bool(o.code) for o in failed.values())
            print(f"{kind:<14} {args.n:>9} {n_done:>6} {n_refused:>8} {len(failed):>7} {peak:>8.0f} MiB  {verdicts}")
            for number, outcome in sorted(failed.items()):
                last = (outcome.output.strip().splitlines() or [""])[-1][:150]
                print(f"  {outcome.verdict}: {last}")
                print(f"    python studies/mutations.py --kinds {kind} --seed {args.seed} --only {number}")
            n_failed += len(failed)
            sys.stdout.flush()
    return int(n_failed > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=at_most(1_000_000), default=3_000, help="mutations of every kind")
    parser.add_argument("--kinds", default=",".join(CASES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=at_most(1_000_000), default=2)
    parser.add_argument("--only", type=int, help="the number of the one mutation to run and show")
    raise SystemExit(main_study(parser.parse_args()))
