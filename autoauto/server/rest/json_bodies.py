"""Bodies in JSON, read strictly: `read_object`."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from autoauto.records.errors import BadInput

MAX_DEPTH = 20
MAX_ITEMS = 100_000
"""The longest list; no knob takes more values."""


def read_object(body: bytes, what: str) -> dict[str, Any]:
    """An object in JSON.

    Args:
        what: the start of every error, for example "a submission".

    Raises:
        BadInput: it is none, a key stands in it twice, or it holds what databases and readers do not take.
    """
    try:
        given = msgspec.json.decode(body)
        json.loads(body, object_pairs_hook=lambda pairs: _check_keys(pairs, what))
    except BadInput:
        raise
    except (ValueError, RecursionError) as error:  # also of msgspec, and UnicodeDecodeError
        raise BadInput(f"{what} must be an object in JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadInput(f"{what} must be an object in JSON, got {given!r:.60}")
    _check(given, what, MAX_DEPTH)
    return given


def _check_keys(pairs: list[tuple[str, Any]], what: str) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(f"a key stands once in an object of {what}, got {twice!r:.60} twice; leave one out")


def _check(value: object, what: str, depth: int) -> None:
    if isinstance(value, str) and "\0" in value:
        raise BadInput(f"texts of {what} have no null characters, got one; leave it out")
    if not isinstance(value, dict | list):
        return
    if not depth:
        raise BadInput(f"objects and lists of {what} lie in each other at most {MAX_DEPTH} deep, got more")
    if len(value) > MAX_ITEMS:
        raise BadInput(f"a list or an object of {what} has at most {MAX_ITEMS:,} items, got {len(value):,}")
    for part in value:
        _check(part, what, depth - 1)
        if isinstance(value, dict):
            _check(value[part], what, depth - 1)
