"""JSON on stdout instead of tables: the option `add_json` and `print_json`."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the choice between JSON and tables."""
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")


def print_json(record: dict[str, Any]) -> None:
    """Print one JSON object on stdout."""
    print(json.dumps(record, indent=1))
