"""The study of mutations: what is given decides a mutation, and none of a few ends otherwise than documented."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from studies import mutations


@pytest.mark.parametrize("kind", mutations.CASES)
def test_a_number_decides_a_mutation(kind: str) -> None:
    cases = mutations.CASES[kind]()
    first, again = ([mutations.mutated(kind, cases, 0, number) for number in range(8)] for _ in range(2))
    assert first == again
    assert first != [mutations.mutated(kind, cases, 1, number) for number in range(8)]


@pytest.mark.parametrize(
    ("code", "errors", "verdict"),
    [
        (0, "autoauto: a note\n", ""),
        (2, "autoauto: bad\n", ""),
        (2, "", "no line"),
        (2, "autoauto: bad\nmore\n", "no line"),
        (1, "Traceback (most recent call last):\nKeyError: 'a'\n", "traceback"),
        (1, "", "exit code 1"),
        (1, "Traceback\nMemoryError\n", "memory"),
        (-24, "", "hang"),
        (2, "autoauto: \x1b[31m\n", "unprintable"),
    ],
)
def test_a_command_ends_as_documented_or_not(code: int, errors: str, verdict: str) -> None:
    assert mutations.verdict_of(code, errors) == verdict


@pytest.mark.slow
def test_a_hang_and_a_traceback_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spin(_: object) -> int:
        while True:
            pass

    def fail(_: object) -> int:
        raise KeyError("a")

    (tmp_path / "studies").mkdir()
    monkeypatch.setattr(mutations, "TIME_LIMIT_S", 1)
    for command, verdict in ((spin, "hang"), (fail, "traceback")):
        monkeypatch.setattr(mutations, "main", command)
        assert mutations.run_case(mutations.Case(("models",)), tmp_path).verdict == verdict


@pytest.mark.slow
def test_a_few_mutations_of_every_kind_end_as_documented(run_script: Callable[..., list[str]]) -> None:
    _, *rows = run_script("mutations", "--n", "8")
    assert [row.split()[0] for row in rows] == list(mutations.CASES)
