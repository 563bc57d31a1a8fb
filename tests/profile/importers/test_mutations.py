"""Files of recorded profiles with random mistakes are read, or refused in one line; never is there another error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from autoauto.profile.importers.profile_target import ProfileTarget
from autoauto.profile.importers.recorded import RecordedProfile, line_graph
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device
from autoauto.records.profile import CompileOptions
from autoauto.records.units import Precision
from tests.profile.importers.conftest import Recorded

N_MUTATIONS = 400
ODD_VALUES: list[Any] = [
    *(None, True, -1, 0, 1.5, 1e300, 10**30, -(10**30), "", "x", "9" * 40, "\n", "\ud7ff\u2028", "nan", "inf", "-1"),
    *([], {}, [[]], [{}], {"a": 1}, [1, -1], ["x"]),
]
MAX_EVENTS = 60


def small(document: Any) -> Any:
    """A trace with fewer events, so that a mutation hits those that are read."""
    if isinstance(document, list):
        return [*document[:MAX_EVENTS], *(e for e in document[MAX_EVENTS:] if e.get("name") == "model_run")]
    if "traceEvents" in document:
        events = document["traceEvents"]
        wanted = [e for e in events if e.get("cat") in ("user_annotation", "fwdbwd")]
        return {"traceEvents": [*wanted, *events[: 10 * MAX_EVENTS : 3]]}
    return document


def mutated_bytes(content: bytes, random: Random) -> bytes:
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
    paths = list(containers(document))
    parent = random.choice(paths)
    keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
    key = random.choice(keys)
    match random.randrange(4):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, list):
            parent.insert(key, parent[key])
        case _:
            parent[key] = random.choice(ODD_VALUES)
    return document


def containers(document: Any) -> Iterator[Any]:
    if isinstance(document, dict | list) and document:
        yield document
        for value in document.values() if isinstance(document, dict) else document:
            yield from containers(value)


def check_one_line(error: BadInput) -> None:
    assert "\n" not in str(error)
    assert "\r" not in str(error)


def use(profile: RecordedProfile) -> None:
    """What a plan does with a profile."""
    graph, target = line_graph(profile), ProfileTarget(profile)
    device = Device("d", 1e9, 1e9, 1, 1)
    for training in {False, profile.trains}:
        options = CompileOptions(profile.batch_sizes[0], 1.0, Precision.FP32, training)
        target.profile(graph, device, options)


@pytest.mark.parametrize("second", [False, True])
def test_mutations_of_bytes_and_structure(recorded: Recorded, second: bool, tmp_path: Path) -> None:
    if second and recorded.details is None:
        pytest.skip("the format has one file")
    random, n_refused = Random(7), 0
    original = (recorded.details if second and recorded.details else recorded.file).read_bytes()
    is_json = original.lstrip()[:1] in (b"[", b"{")
    document = small(json.loads(original)) if is_json else None
    content = json.dumps(document).encode() if is_json else original
    path = tmp_path / recorded.file.name
    for number in range(N_MUTATIONS):
        if is_json and number % 2:
            path.write_text(json.dumps(mutated_structure(json.loads(content), random)))
        else:
            path.write_bytes(mutated_bytes(content, random))
        files = (recorded.file, path) if second else (path, recorded.details)
        try:
            use(recorded.read(*files, None))
        except BadInput as error:
            check_one_line(error)
            n_refused += 1
    assert 0 < n_refused < N_MUTATIONS


def test_without_a_mutation_all_are_read(recorded: Recorded) -> None:
    use(recorded.read(recorded.file, recorded.details, None))
