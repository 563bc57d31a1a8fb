"""The arguments of the tools, as types: their descriptions and JSON schemas are what a client of the protocol reads."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from autoauto.exporters.registry import FORMATS

MAX_WAIT_S = 3_600.0
DEFAULT_WAIT_S = 50.0
"""Shorter than the minute after which clients give up a call by default."""
MAX_LISTED = 200

BudgetSeconds = Annotated[float, Meta(gt=0)]
SearchId = Annotated[
    str, Meta(min_length=1, max_length=40, description="id of a search, or the beginning of one, as `search` answers")
]


class SearchArguments(Struct, forbid_unknown_fields=True):
    """A search to ask for."""

    model: Annotated[
        str,
        Meta(
            min_length=1,
            description="a built-in name (`list_models`) or the path of an ONNX file on this machine, which is "
            "uploaded; with target gpu a language model by its name on Hugging Face",
        ),
    ]
    cluster: Annotated[
        str | None,
        Meta(description="the devices: a built-in name (`list_clusters`) or the path of a TOML file; not for host"),
    ] = None
    target: Annotated[
        str | None,
        Meta(description="ipu (modelled), gpu (language models in serving engines) or host (CPU cores of a worker)"),
    ] = None
    objective: Annotated[
        str | None, Meta(description="what is optimised, for example throughput or latency; throughput by default")
    ] = None
    constraints: Annotated[
        list[str], Meta(description='bounds that must hold, for example "latency_s <= 0.002" or "tpot_s <= 0.05"')
    ] = field(default_factory=list)
    space: Annotated[
        dict[str, Any],
        Meta(
            description="values of knobs by name; knobs that are left out take their defaults. For example "
            '{"n_ipu": [1, 2], "replicas": [1, 2]}, or for text {"input_tokens": [1024], "output_tokens": [256]}'
        ),
    ] = field(default_factory=dict)
    time_budget_s: Annotated[
        BudgetSeconds | None, Meta(description="seconds after which the search ends with its best so far")
    ] = None
    options: Annotated[
        dict[str, Any], Meta(description="further options by the names that a search file has, for example precision")
    ] = field(default_factory=dict)


class WaitArguments(Struct, forbid_unknown_fields=True):
    """A search, and for how long its end is waited for."""

    search_id: SearchId
    seconds: Annotated[
        float, Meta(ge=0, le=MAX_WAIT_S, description="wait at most so long; the search goes on afterwards")
    ] = DEFAULT_WAIT_S


class OneSearch(Struct, forbid_unknown_fields=True):
    """A search."""

    search_id: SearchId


class CompareArguments(Struct, forbid_unknown_fields=True):
    """Two searches."""

    first: SearchId
    second: SearchId


class ExportArguments(Struct, forbid_unknown_fields=True):
    """A search, a format and a folder."""

    search_id: SearchId
    to: Annotated[
        str,
        Meta(
            min_length=1,
            description="the format; of a language model on GPUs that of the engine of its best configuration; one of "
            + ", ".join(sorted(FORMATS.names)),
        ),
    ]
    folder: Annotated[str, Meta(min_length=1, description="a new or empty folder on this machine for the files")]


class ListArguments(Struct, forbid_unknown_fields=True):
    """The number of searches to list."""

    limit: Annotated[int, Meta(ge=1, le=MAX_LISTED, description="the newest so many")] = 20


class NoArguments(Struct, forbid_unknown_fields=True):
    """Nothing."""
