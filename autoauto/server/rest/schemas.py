"""The schemas of what is sent and answered: `SCHEMAS` by name, `ref` to one of them, `object_of` of properties."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from autoauto.server.rest.parameters import STATE, TEXT, Schema
from autoauto.server.rest.worker_messages import REQUESTS
from autoauto.server.store.searches import MAX_PRIORITY

NOTHING: Mapping[str, Any] = MappingProxyType({})


def object_of(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """The schema of an object with these properties, some of which it always has."""
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema


def ref(name: str) -> Schema:
    """A reference to one of `SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def _whole(**properties: Schema) -> Schema:
    """The schema of an object that always has all of these properties."""
    return object_of(tuple(properties), **properties)


_WHOLE: Schema = {"type": "integer"}
_MOMENT: Schema = {"type": ["number", "null"], "description": "seconds since 1970, UTC"}
_ANY: Schema = {"type": ["object", "null"]}
_LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
_ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{20}$"}
_NEXT: Schema = {"type": ["string", "null"], "description": "the path of the next page"}
_SEARCH = object_of(
    ("id", "state", "reason", "progress", "best", "created", "links"),
    id=_ID,
    state=STATE,
    reason=TEXT,
    model=TEXT,
    cluster=TEXT,
    model_name={"type": "string", "description": "as people read it: an uploaded file by its name"},
    cluster_name=TEXT,
    files={"type": "object", "description": "names of the uploaded files by what they are: model, cluster, trace"},
    target=TEXT,
    objective=TEXT,
    owner={"type": ["string", "null"]},
    priority={"type": ["integer", "null"]},
    shared={"type": "boolean"},
    may_export={"type": "boolean", "description": "whether you may export it"},
    created={"type": "number"},
    started=_MOMENT,
    ended=_MOMENT,
    used_s={"type": "number"},
    n_measured=_WHOLE,
    n_trials=_WHOLE,
    n_attempts=_WHOLE,
    ended_by={"type": ["string", "null"], "description": "the limit that ended it: seconds, measurements or trials"},
    progress=_ANY,
    best={"type": ["object", "null"], "description": "the best so far, then the answer as `search --json` has it"},
    answer={"type": ["object", "null"], "description": "all that `search --json` prints, and the lines without it"},
    links=object_of(),
)
_TRIAL = {
    **object_of(("number", "state"), number=_WHOLE, state=TEXT, status=TEXT, reason=TEXT, datetime_complete=TEXT),
    "description": "knobs and numbers of a trial, those that it has; docs/python.md names them",
}
BYTES: Schema = {"description": "as the command of the same name writes it"}
EVENT_STREAM: Schema = {
    "type": "string",
    "description": "server-sent events: search, started, progress, best, ended; their data is a Search, without "
    "its answer where it is one of several",
}
_SUBMISSION = {
    **object_of(
        model={"type": "string", "description": "a built-in name, or sha256: and the digest of an uploaded file"},
        cluster={"type": "string", "description": "a built-in name, or sha256: and the digest of an uploaded file"},
        target=TEXT,
        space={"type": "object", "description": "values of knobs, as under [knobs] of a search file"},
        request={"type": "object", "description": "a whole SearchRequest, in place of the options"},
        limits=object_of(measurements=_LIMIT, trials=_LIMIT),
        labels={"type": "object", "additionalProperties": TEXT, "description": "what a worker must say of itself"},
        priority={"type": "integer", "minimum": -MAX_PRIORITY, "maximum": MAX_PRIORITY},
        shared={"type": "boolean", "description": "all users may see it"},
        share_weights={"type": "boolean", "description": "and export it, with the weights of an uploaded model"},
    ),
    "description": "Options and knobs as in a search file (docs/search.md), for example objective and time_budget",
    "examples": [{"model": "resnet50", "cluster": "bow-2000", "space": {"n_ipu": [1, 2], "replicas": [1, 2]}}],
}
_, _OF_WORKERS = msgspec.json.schema_components(REQUESTS, ref_template=ref("{name}")["$ref"])
SCHEMAS = {
    **_OF_WORKERS,
    "Search": _SEARCH,
    "Submission": _SUBMISSION,
    "Problem": _whole(
        type=TEXT,
        title=TEXT,
        status=_WHOLE,
        detail={"type": "string", "description": "what must hold, what was given, what to try"},
        request_id=TEXT,
    ),
    "Submitted": object_of(
        ("id", "state"),
        id=_ID,
        state=STATE,
        links=object_of(),
        detail={"type": "string", "description": "how an equal search that was stopped or has failed goes on"},
    ),
    "Searches": _whole(searches={"type": "array", "items": ref("Search")}, next=_NEXT),
    "Trials": _whole(trials={"type": "array", "items": _TRIAL}, next=_NEXT),
    "Model": _whole(
        digest={"type": "string", "pattern": "^[0-9a-f]{64}$"},
        model=TEXT,
        name=TEXT,
        n_bytes=_WHOLE,
        owner=TEXT,
        created=_MOMENT,
    ),
    "Models": _whole(
        models={"type": "array", "items": ref("Model")}, next=_NEXT, used_bytes=_WHOLE, quota_bytes=_WHOLE
    ),
    "Health": object_of(("status",), status=TEXT, version=TEXT),
}
