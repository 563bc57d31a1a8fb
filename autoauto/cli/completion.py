"""Print a script with which a shell completes commands.

It completes options, models and clusters, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from autoauto.cli.options.parser import Parser
from autoauto.records.errors import missing_extra
from autoauto.records.installation import builtin_models

EXAMPLE = "completion bash"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.add_argument("shell", choices=["bash", "zsh"], help="the shell: bash, zsh")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    try:
        import shtab
    except ImportError:
        raise missing_extra("completion", "completion") from None
    from autoauto.targets.clusters import builtin_clusters

    names = {"model": [*builtin_models()], "cluster": [*builtin_clusters()]}
    for action in _actions(args.program):
        if action.dest in names:
            function = f"_autoauto_{action.dest}"
            vars(action)["complete"] = {"bash": function, "zsh": function}  # where shtab looks
        elif "FILE" in str(action.metavar):
            vars(action)["complete"] = shtab.FILE
    write = _bash if args.shell == "bash" else _zsh
    functions = "\n".join(write(name, words) for name, words in names.items())
    print(shtab.complete(args.program, args.shell, preamble=functions))
    return 0


def _actions(program: Parser) -> Iterator[argparse.Action]:
    for action in program._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from command._actions


def _bash(name: str, words: Iterable[str]) -> str:
    return f'_autoauto_{name}() {{ compgen -W "{" ".join(words)}" -- "$1"; compgen -f -- "$1"; }}'


def _zsh(name: str, words: Iterable[str]) -> str:
    return f"_autoauto_{name}() {{ _alternative '{name}:{name}:({' '.join(words)})' 'files:file:_files' }}"
