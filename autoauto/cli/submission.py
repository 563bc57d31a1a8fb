"""A search as an object in JSON, which a client of the server sends: read as a search file is, `request_of_json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from autoauto.cli.options.parser import Parser
from autoauto.cli.search_config import NOT_IN_FILES, config_values
from autoauto.records.errors import BadInput
from autoauto.records.files.toml import ParsedTable

if TYPE_CHECKING:
    from autoauto.space.requests.request import SearchRequest

SPACE = "space"
"""The key of the values of knobs."""
OF_A_MACHINE = (
    frozenset({"launch", "endpoint", "launch_timeout", "measure_on"})
    | {"storage", "study_name", "workers", "time_limit", "memory_limit", "executor", "log", "server"}
    | {"profile", "profile_format", "profile_details", "devices", "link_gb_per_s"}
    | {"parser", "run", "program", "main"}
)
"""Options that say where and how a process searches, or name files of it: a client does not decide them."""


@dataclass(frozen=True, slots=True)
class JsonObject(ParsedTable):
    """An object in JSON in place of a TOML file; `space` is its table of knobs, and errors name keys, not lines."""

    @override
    def bad(self, keys: Sequence[str | int], message: str, item: str = "") -> BadInput:
        names = [SPACE if name == "knobs" else str(name) for name in keys]
        return BadInput(f"{'.'.join(names)}: {message.replace('[knobs]', SPACE)}" if names else message)


def request_of_json(add_arguments: Callable[[Parser], None], given: Mapping[str, Any]) -> SearchRequest:
    """The request of an object with options and, as `space`, values of knobs.

    Raises:
        BadInput: an option or a knob is unknown, has a wrong value, or is none that a client decides.
    """
    from autoauto.space.requests.problem import check_n_constraints
    from autoauto.space.requests.request import SearchRequest
    from autoauto.space.requests.target_choice import chosen_target
    from autoauto.study.methods.registry import method_for

    if "knobs" in given:
        raise BadInput("values of knobs are in space, got knobs; call it space")
    if isinstance(given.get("constraints"), list):
        check_n_constraints(len(given["constraints"]))  # before each is read
    parser = Parser(prog="autoauto search")
    add_arguments(parser)
    table = dict(given)
    if SPACE in table:
        table["knobs"] = table.pop(SPACE)
    parser.set_defaults(**config_values(JsonObject(table), parser, NOT_IN_FILES | OF_A_MACHINE))
    args = parser.parse_args([])
    args.method = method_for(args.objective, args.method)
    if args.target is None:
        args.target = chosen_target(args.model, args.cluster, reads_files=False)
    return SearchRequest.of(vars(args))
