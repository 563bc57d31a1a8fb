"""How profiles and their layers are stored: `save_profile`, `read_profile_record`, `layer_to_json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import PROFILE_SCHEMA, LayerProfile, ModelProfile, UnboundLayer
from autoauto.records.errors import BadInput
from autoauto.records.files.fields import PositiveWhole, stored_form
from autoauto.records.files.json import from_plain, to_json, to_plain, write_json

_OPTIONS: Any = stored_form(CompileOptions, without=("session",), batch_size=PositiveWhole)
"""Options without their session, which a profile has beside them for people to read."""
LAYER: Any = stored_form(LayerProfile, {"stashed_input_bytes": "kept_input_bytes"})
_PROFILE = stored_form(ModelProfile, options=_OPTIONS | None, layers=tuple[LAYER, ...])
UNBOUND: Any = stored_form(UnboundLayer, profile=LAYER)
"""The forms of a cached layer, and of one that holds for every bound from some bytes on."""


def save_profile(profile: ModelProfile, path: Path) -> None:
    """Write `profile` as JSON; raises `BadInput` if the file cannot be written."""
    write_json(profile_record(profile), path)


def profile_record(profile: ModelProfile) -> dict[str, Any]:
    """A profile as plain values: its fields, some by another name, and the number of their schema."""
    record: dict[str, Any] = to_plain(profile, PROFILE_SCHEMA, _PROFILE)
    if profile.options is not None:
        session = profile.options.session
        runtime = {} if session.runtime is None else {"runtime": session.runtime}
        record["options"]["session"] = {**runtime, **session.values}
    return record


def read_profile_record(record: object, where: str) -> ModelProfile:
    """Read what `profile_record` made, with a `PlainSession`; `where` is the start of every error.

    Raises BadInput if it is none.
    """
    return from_plain(ModelProfile, record, where, PROFILE_SCHEMA, form=_PROFILE)


def layer_to_json(layer: LayerProfile | UnboundLayer) -> str:
    """A layer's profile as it is cached. Its schema is part of the digest by which it is found.

    Raises BadInput for cycles or bytes that are not exact.
    """
    try:
        return to_json(layer, form=LAYER if isinstance(layer, LayerProfile) else UNBOUND).decode()
    except BadInput as error:
        what = str(error).removesuffix("; correct it there")
        raise BadInput(f"{what}; try a smaller batch size or model") from error
