"""Parameters behind a path, read as their schemas in the table of routes say: `read_parameters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoauto.exporters.registry import FORMATS
from autoauto.records.errors import BadInput
from autoauto.server.client import MAX_PAGE
from autoauto.server.store.searches import SearchState
from autoauto.targets.registry import DEFAULT_TARGET, TARGETS

Schema = Mapping[str, Any]
TEXT: Schema = {"type": "string"}
STATE: Schema = {"type": "string", "enum": [str(state) for state in SearchState]}
_NUMBER: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "default": 0}
_BY_NAME: Mapping[str, Schema] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 50},
    **dict.fromkeys(("before", "first", "part"), _NUMBER),
    "state": STATE,
    "target": {"type": "string", "enum": list(TARGETS), "default": DEFAULT_TARGET},
    "top": {"type": "integer", "minimum": 1, "maximum": 1_000_000, "default": 20, "description": "rows as text"},
    "columns": {"type": "integer", "minimum": 40, "maximum": 1_000, "description": "of the reader's terminal"},
    "name": {"type": "string", "description": "of the file, as people read it"},
    "to": {"type": "string", "enum": sorted(FORMATS.names)},
    "check": {"type": "string", "enum": ["true", "false"], "default": "false"},
}
"""The schemas of parameters, which mean one thing everywhere; others are texts."""


def named(*names: str) -> dict[str, Schema]:
    """The schemas of parameters."""
    return {name: _BY_NAME.get(name, TEXT) for name in names}


def read_parameters(given: Mapping[str, str], schemas: Mapping[str, Schema]) -> dict[str, Any]:
    """The values of all parameters that a path has; what is not given, or empty, is its default, or None.

    Raises:
        BadInput: the path has no such parameter, or not with this value.
    """
    others = sorted(set(given) - set(schemas))
    if others:
        raise BadInput(f"parameters here are {', '.join(schemas) or 'none'}, got {others[0]!r:.60}; leave it out")
    values = {}
    for name, schema in schemas.items():
        values[name] = _read(name, given[name], schema) if given.get(name) else schema.get("default")
    return values


def _read(name: str, text: str, schema: Schema) -> Any:
    if schema["type"] == "integer":
        low, high = schema["minimum"], schema["maximum"]
        if not (text.isascii() and text.isdecimal() and len(text) <= 10 and low <= int(text) <= high):
            raise BadInput(f"{name} must be a whole number from {low} to {high}, got {text!r:.60}")
        return int(text)
    if text not in schema.get("enum", (text,)):
        raise BadInput(f"{name} is one of {', '.join(schema['enum'])}, got {text!r:.60}")
    if "\0" in text:  # PostgreSQL takes none
        raise BadInput(f"{name} must be a text without null characters, got {text!r:.60}")
    return text
