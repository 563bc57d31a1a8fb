"""A `ModelProfile` as a JSON file with a schema number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoauto.profile.field import Field
from autoauto.records.errors import BadInput
from autoauto.records.profile import PROFILE_SCHEMA, CompileOptions, LayerProfile, ModelProfile
from autoauto.records.units import Precision


def save_profile(profile: ModelProfile, path: Path) -> None:
    """Write `profile` as JSON; names are the field names.

    Raises:
        BadInput: the file cannot be written.
    """
    write_json(asdict(profile), path)


def load_profile(path: Path) -> ModelProfile:
    """Read what `save_profile` wrote.

    Raises:
        BadInput: no such file, not JSON, another schema, or a field that is missing or wrong; the message names it.
    """
    root = Field(read_json(path), f"{path}: profile")
    schema = root["schema"]
    if schema.value != PROFILE_SCHEMA:
        raise BadInput(f"{schema.where} must be {PROFILE_SCHEMA}, got {schema.value!r}; try `autoauto profile` again")
    columns = [root[column].entries() for column in ("names", "kinds", "tied", "layers")]
    names, kinds, tied, layers = columns
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1 or not layers:
        raise BadInput(f"{root.where} needs names, kinds, tied and layers of one length, at least 1, got {lengths}")
    return ModelProfile(
        model=root["model"].text(),
        target=root["target"].text(),
        options=_options(root["options"]),
        names=tuple(name.text() for name in names),
        kinds=tuple(kind.text() for kind in kinds),
        tied=tuple(None if key.value is None else key.text() for key in tied),
        layers=tuple(layer_profile(layer) for layer in layers),
    )


def layer_profile(layer: Field) -> LayerProfile:
    """Read what `asdict` made of a layer's profile.

    Raises:
        BadInput: a field is missing or wrong; the message names it.
    """
    return LayerProfile(
        forward_cycles=layer["forward_cycles"].whole(),
        backward_cycles=layer["backward_cycles"].whole(),
        shared=layer["shared"].whole_by_name(),
        exclusive=layer["exclusive"].whole_by_name(),
        temporary_bytes=layer["temporary_bytes"].whole(),
        carried_bytes=layer["carried_bytes"].whole(),
        input_bytes=layer["input_bytes"].whole(),
        output_bytes=layer["output_bytes"].whole(),
        activation_bytes=layer["activation_bytes"].whole(),
        weight_cycles=layer["weight_cycles"].whole(),
        kept_input_bytes=layer["kept_input_bytes"].whole(),
    )


def _options(options: Field) -> CompileOptions | None:
    if options.value is None:
        return None
    return CompileOptions(
        batch_size=options["batch_size"].whole(least=1),
        memory_proportion=options["memory_proportion"].positive(),
        precision=options["precision"].choice(Precision),
        training=options["training"].truth(),
    )


def write_json(record: Mapping[str, Any], path: Path) -> None:
    """Write plain values as a JSON file.

    Raises:
        BadInput: the file cannot be written.
    """
    try:
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the profile needs a file that can be written, got {path} ({error.strerror})") from error


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        BadInput: no such file, or not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"a JSON file must be readable, {path}: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"a file must hold JSON, {path}: {error}; mend that place") from error
