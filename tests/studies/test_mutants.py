"""The study of mutants: what it changes and what not, what decides a draw, and that a blind test lets one survive."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from studies import mutants

CODE = b'''"""Text 1."""
def f(a: int, b: tuple[int, 2]) -> list[int]:
    """A docstring of 3 < 4."""
    if a and not b:
        raise ValueError(f"{a + 1} < 5", 6)
    log(7, 8)
    x.y = a % 9
    for i in range(a):
        a += i
        g(a, b)
    return [min(a, a)]
'''


def changes(kind: str) -> list[str]:
    return [mutant.lines(CODE)[1] for mutant in mutants.mutants_of("f.py", CODE) if mutant.kind == kind]


def test_every_kind_changes_what_it_says() -> None:
    assert changes("and-or") == ["if (a or not b):"]
    assert changes("not") == ["if a and (b):"]
    assert changes("condition") == ["if (not (a and (not b))):"]
    assert changes("constant") == ["x.y = a % 8", "x.y = a % 10"]
    assert changes("operator") == ["x.y = (a // 9)", "a -= i"]
    assert changes("name") == ["return [max(a, a)]"]
    assert changes("arguments") == ["g(b, a)"]
    assert changes("empty") == ["return []\n    if a and not b:"]
    assert changes("drop") == ["pass"] * 4  # the error, x.y, the sum, the call
    assert changes("comparison") == []  # these are in texts


@pytest.mark.parametrize("name", ["targets/ipu/operator_cost.py", "server/rest/door.py", "serve/server.py"])
def test_every_mutant_is_code_that_differs(name: str) -> None:
    source = (mutants.ROOT / "autoauto" / name).read_bytes()
    every = mutants.mutants_of(name, source)
    assert {mutant.kind for mutant in every} >= {"comparison", "constant", "and-or", "not", "condition"}
    for mutant in mutants.drawn(every, 0, 20):
        ast.parse(mutant.applied(source))
        assert mutant.diff(source).count("\n@@") == 1


def test_a_seed_decides_a_draw_and_no_position_is_drawn_twice() -> None:
    every = mutants.mutants_of("f.py", CODE)
    assert mutants.drawn(every, 0, 6) == mutants.drawn(every, 0, 6) != mutants.drawn(every, 1, 6)
    everything = mutants.drawn(every, 0, 1000)
    assert len({mutant.start for mutant in everything}) == len(everything) == len({each.start for each in every})


@pytest.mark.slow
def test_tests_kill_what_they_look_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("autoauto/room", "tests/room"):
        (tmp_path / "tree" / folder).mkdir(parents=True)
    (tmp_path / "tree/autoauto/__init__.py").touch()
    (tmp_path / "tree/pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n')
    code, test = tmp_path / "tree/autoauto/room/code.py", tmp_path / "tree/tests/room/test_code.py"
    code.write_text("def f(a):\n    b = a > 5\n    return a > 2\n")
    test.write_text("from autoauto.room.code import f\ndef test_it():\n    assert [f(2), f(3)] == [False, True]\n")
    monkeypatch.setattr(mutants, "ROOT", tmp_path / "tree")
    every = [
        each for each in mutants.mutants_of("autoauto/room/code.py", code.read_bytes()) if each.kind == "comparison"
    ]
    results = mutants.run_mutants("room", every)
    verdicts = {(result.mutant.lines(code.read_bytes())[1], result.verdict) for result in results}
    assert verdicts == {("b = a >= 5", "survived"), ("return a >= 2", "killed")}
    test.write_text("def test_it():\n    assert False\n")
    with pytest.raises(SystemExit, match="must pass without a mutant"):
        mutants.run_mutants("room", every)


def test_equivalent_mutants_are_lines_of_the_code() -> None:
    for path, before, _ in mutants.equivalent():
        assert before in (mutants.ROOT / path).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_tests_of_a_room_find_mutants(run_script: Callable[..., list[str]]) -> None:
    (line,) = run_script("mutants", "http", "--n", "2", "--json")
    counts = json.loads(line)
    assert counts["n"] == 2
    assert counts["killed"] + len(counts["survivors"]) == 2
    assert run_script("mutants", "nothing", exit_codes=(2,))[-1].startswith("mutants.py: error: ROOM must be")
