"""The arguments in the short help of a command with many options: `short_help`, by the target that is named."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from autoauto.records.errors import BadInput
from autoauto.space.requests.target_choice import with_target
from autoauto.space.requests.typical import typical_options
from autoauto.targets.registry import DEFAULT_TARGET, TARGETS

_COMMON = {
    *("study", "stages", "dry_run", "storage", "study_name", "server", "config", "to", "output", "check", "explain"),
    *("html", "json", "help", "help_all"),
}
"""Options of commands that the short help shows beside those of searches."""


def short_help(actions: Sequence[argparse.Action], words: Sequence[str]) -> list[argparse.Action]:
    """The common arguments that the target named in `words` uses, and the options that only this target has.

    Those of the default target are many and rare; --help-all shows them.
    """
    shown = _COMMON | typical_options(TARGETS[_target_name(words)])
    return [action for action in actions if action.dest in shown or not action.option_strings]


def _target_name(words: Sequence[str]) -> str:
    """The target of --target or of --cluster, before or after --help; the default one where none is named."""
    given: dict[str, str] = {}
    for previous, word in pairwise(["", *words]):
        for option in ("--target", "--cluster"):
            if previous == option:
                given[option] = word
            elif word.startswith(f"{option}="):
                given[option] = word.removeprefix(f"{option}=")
    with suppress(BadInput):
        name = str(with_target({"target": given.get("--target"), "cluster": given.get("--cluster")})["target"])
        return name if name in TARGETS else DEFAULT_TARGET
    return DEFAULT_TARGET
