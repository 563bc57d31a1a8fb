"""A `ModelProfile` as a JSON file with a schema number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoauto.records.errors import BadInput
from autoauto.records.profile import PROFILE_SCHEMA, CompileOptions, LayerProfile, ModelProfile
from autoauto.records.units import Precision


def save_profile(profile: ModelProfile, path: Path) -> None:
    """Write `profile` as JSON; names are the field names.

    Raises:
        BadInput: the file cannot be written.
    """
    write_json(asdict(profile), path)


def write_json(record: Mapping[str, Any], path: Path) -> None:
    """Write plain values as a JSON file.

    Raises:
        BadInput: the file cannot be written.
    """
    try:
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the profile needs a file that can be written, got {path} ({error.strerror})") from error


def load_profile(path: Path) -> ModelProfile:
    """Read what `save_profile` wrote.

    Raises:
        BadInput: no such file, not JSON, or another schema.
    """
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"a profile must be a readable JSON file, got {path} ({error})") from error
    schema = record.get("schema") if isinstance(record, dict) else None
    if schema != PROFILE_SCHEMA:
        raise BadInput(f"a profile needs schema {PROFILE_SCHEMA}, got {schema} in {path}; try `autoauto profile` again")
    options = record["options"]
    return ModelProfile(
        model=record["model"],
        target=record["target"],
        options=options and CompileOptions(**options | {"precision": Precision(options["precision"])}),
        names=tuple(record["names"]),
        kinds=tuple(record["kinds"]),
        tied=tuple(record["tied"]),
        layers=tuple(LayerProfile(**layer) for layer in record["layers"]),
    )
