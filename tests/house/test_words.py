"""Names use the words of the field: those that were replaced do not come back."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.house.trees import nodes

REPLACED = {
    r"prospects?": "forecast curve",
    r"trusts?|trusted": "error model",
    r"ahead": "lookahead",
    r"settle[ds]?|settling": "tie-break",
    r"rehears(?:e|es|ed|al|als)": "dry run",
    r"contenders?|contestants?": "finalist, entrant",
    r"findings?": "study summary",
    r"questions?": "plan queries",
    r"yardsticks?": "speed probe",
    r"quiet|quieter|quietest": "undisturbed",
    r"kept": "stash, cache, resumed, stored",
    r"entered": "entry overhead",
    r"learn(?:ed|t)": "fitted",
    r"staircases?": "Pareto front",
    r"least": "minimum, lower bound",
    r"begun": "started, offset",
    r"crews?": "worker loop",
    r"strains?": "constraint ratio",
    r"miss|missed|misses": "violation",
    r"usual": "prior, typical",
    r"pull": "shrinkage",
    r"bands?": "prediction interval",
    r"tells?|told|hears?|heard": "record, report, print, receive, interrupted",
    r"aims?": "objectives",
    r"boards?": "dashboard",
    r"recipes?": "search config",
    r"places?": "path, position, resources",
    r"hands": "executor",
}
"""Words of a name, as a regular expression each, and the term of the field."""

REPLACED_NAMES = {
    r"Own|Children": "InlineExecutor, ProcessExecutor",
    r"Propose|Step|Tried": "proposer, proposal, observation",
    r"Work|Site|Demand": "operator cost, operator context, relayout",
    r"\w*every_n(?:_ipu)?": "per device count",
    r"_?anchored": "calibrated (PopART has anchored tensors)",
    r"_?(?:found|one|it|them|that)": "the noun that it is",
}
"""Whole names, as a regular expression each, and what to write instead."""

IDIOMS = re.compile(r"at_least|in_place|decimal_places")
WORD = re.compile(rf"(?:{'|'.join(REPLACED)})", re.IGNORECASE)
WHOLE = re.compile(rf"(?:{'|'.join(REPLACED_NAMES)})")


def names(tree: ast.Module) -> Iterator[str]:
    """Everything that a file gives a name: classes, functions, arguments, variables, attributes, imports."""
    for node in nodes(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name


def words(name: str) -> list[str]:
    """The words of a snake_case or CamelCase name."""
    return re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", IDIOMS.sub("", name))


@cache
def is_replaced(name: str) -> bool:
    return WHOLE.fullmatch(name) is not None or any(WORD.fullmatch(word) for word in words(name))


@pytest.mark.parametrize("folder", ["autoauto", "studies", "tests"])
def test_no_name_uses_a_replaced_word(folder: str, sources: Mapping[Path, ast.Module]) -> None:
    replaced = {
        f"{path}: {name}"
        for path, tree in sources.items()
        if path.parts[0] == folder
        for name in names(tree)
        if is_replaced(name)
    }
    assert sorted(replaced) == []


@pytest.mark.parametrize(
    "name", ["is_told", "_kept_", "n_least", "TrialBand", "MissRate", "found", "Tried", "best_every_n_ipu", "LEAST"]
)
def test_replaced_words_are_recognised(name: str) -> None:
    assert is_replaced(name)


@pytest.mark.parametrize(
    "name", ["bandwidth_bytes_per_s", "fits_at_least_twice", "replace", "constraint", "n_tried", "test_one_is_found"]
)
def test_other_words_are_free(name: str) -> None:
    assert not is_replaced(name)


def test_every_way_to_give_a_name_is_seen() -> None:
    program = """
import math as a
class B:
    c: int
    def d(self, e, *f, **g):
        self.h = 1
        try:
            i = [j for j in e]
        except OSError as k:
            pass
        for l, (m, n) in (o := e):
            pass
        with open(q) as r:
            pass
"""
    assert set(names(ast.parse(program))) == {*"aBcdefghijklmnor", "self"}
