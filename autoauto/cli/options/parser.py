"""The parser of a command, `Parser`: errors in one line, a short help and a help in groups."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from shutil import get_terminal_size
from typing import Any, NoReturn

from autoauto.records.errors import BadInput, did_you_mean

_KNOBS = "space, or one configuration of it"
_GROUPS = {
    "model and cluster": "model shape batch_axis state config target cluster gpus precision headroom device_memory_gib "
    "period overlap cut_at estimator planning_proportion",
    _KNOBS: "mode global_batch io_mode io_tiles",  # and the knobs, see `_groups`
    "objective and constraints": "objective constraints max_latency_s max_ttft_ms max_tpot_ms",
    "measuring": "method n_measurements noise repeats quick strict try time_budget busy dry_run measure measure_flips "
    "launch endpoint launch_timeout measure_on workers time_limit memory_limit executor idle labels max_running",
    "storage": "study study_name storage server resume artifacts",
    "output": "to output check html trace csv parquet format top log json",
}
"""The groups of the help, and the names of the arguments in each; the groups of a target or of profiles follow them."""
_MANY = 14
"""A command that has a target and more options has a short help, too."""


class Parser(argparse.ArgumentParser):
    """Reports wrong arguments in one line, like every other error, and has two kinds of help.

    Attributes:
        command_groups: titles and names of commands, where there are some.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)  # a new option must not change what an old command means
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help="show all options, in groups, and exit")
        self.set_defaults(parser=self)
        self.command_groups: dict[str, tuple[str, ...]] = {}
        self._words: list[str] = []

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; raises BadInput if they are wrong."""
        words = sys.argv[1:] if args is None else list(args)
        if words and words[0].startswith("--") and words[0].partition("=")[0] not in self._option_string_actions:
            raise self.unknown(words[:1])  # argparse would ask for the command that it lacks
        parsed, unknown = self.parse_known_args(words, namespace)
        if unknown:
            raise parsed.parser.unknown(unknown)
        return parsed

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments, and keep them: --help asks which target they name."""
        self._words = list(args or ())
        return super().parse_known_args(args, namespace)

    def unknown(self, words: Sequence[str]) -> BadInput:
        """The error of arguments that a command does not have."""
        options = [word.partition("=")[0] for word in words if word.startswith("-")]
        if not options:
            return self._bad(f"there is one argument too many, {words[0].partition('=')[0]!r}")
        hint = did_you_mean(options[0], self._option_string_actions)
        return self._bad("; ".join(filter(None, [f"there is no option {options[0]!r}", hint])))

    def error(self, message: str) -> NoReturn:
        """Raise the message of argparse as a BadInput."""
        raise self._bad(message)

    def _bad(self, message: str) -> BadInput:
        end = "" if message.endswith("?") else ";"
        return BadInput(f"{message}{end} see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = list(action.choices or ())
        if not choices or value in choices:
            return
        if isinstance(action, argparse._SubParsersAction):
            raise self._bad(f"there is no command {value!r}; {did_you_mean(value, choices, _one_of(choices))}")
        hint = did_you_mean(str(value), map(str, choices))
        raise argparse.ArgumentError(action, "; ".join(filter(None, [f"{_one_of(choices)}, got {value!r}", hint])))

    def format_help(self, show_all: bool = False) -> str:
        """The help. A command with many options shows only common ones, unless all are to be shown."""
        actions = self.explained
        has_target = any(action.dest == "target" for action in actions)
        show_all = show_all or not has_target or len(actions) <= _MANY
        shown = actions
        if not show_all:
            from autoauto.cli.options.short_help import short_help

            shown = short_help(actions, self._words)
        formatter = self._get_formatter()
        usage = self.prog
        for action in actions:
            if not action.option_strings:
                name = str(action.metavar or action.dest)
                if action.nargs in ("?", "*"):
                    name = f"[{name}]"
                usage += f" {name}"
        formatter.add_usage(f"{usage} [OPTION ...]", [], [])
        formatter.add_text(self.description)
        for title, of_group in self.sections(shown):
            formatter.start_section(title)
            formatter.add_arguments(of_group)
            formatter.end_section()
        if not show_all:
            formatter.add_text(f"{self.prog} --help-all shows {len(actions) - len(shown)} more options")
            for action in actions:
                if action.dest == "target":
                    names = "|".join(action.choices or ())
                    formatter.add_text(f"{self.prog} --target {names} --help shows what one target uses")
        return formatter.format_help() + self._example()

    def _example(self) -> str:
        """The example, which is the epilog, as lines that one can copy."""
        from autoauto.report.style import broken_command

        if self.epilog is None:
            return ""
        example, width = f"example: {self.epilog}", get_terminal_size().columns
        if len(example) > width:
            example = "\n".join(["example:", *broken_command(self.epilog, width)])
        return f"\n{example}\n"

    @property
    def explained(self) -> list[argparse.Action]:
        """The arguments that the help shows."""
        return [action for action in self._actions if action.help != argparse.SUPPRESS]

    def sections(self, shown: Sequence[argparse.Action]) -> Iterator[tuple[str | None, list[argparse.Action]]]:
        """Titles and arguments of the groups that are not empty: common ones, those of the command, and the rest."""
        yield from self._commands()
        positionals, rest, *own = self._action_groups
        plain = [*positionals._group_actions, *rest._group_actions]
        grouped: set[str] = set()
        sections: list[tuple[str | None, list[argparse.Action]]] = []
        for title, names in _groups().items():
            sections.append((title, [action for action in plain if action.dest in names]))
            grouped |= names
        for group in own:
            if group is not self._subparsers:  # commands have groups of their own, above
                sections.append((group.title, group._group_actions))
        sections.append(("options", [action for action in plain if action.dest not in grouped]))
        for section, actions in sections:
            if of_group := [action for action in actions if action in shown]:
                yield section, of_group

    def _commands(self) -> Iterator[tuple[str, list[argparse.Action]]]:
        """The groups of commands, each with its line of the help."""
        commands = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        lines = {line.dest: line for action in commands for line in action._choices_actions}
        for title, names in self.command_groups.items():
            yield title, [lines[name] for name in names]


def _groups() -> dict[str, set[str]]:
    """The groups with the names of all knobs, which are imported for a help only."""
    from autoauto.space.table import KNOBS

    groups = {title: set(names.split()) for title, names in _GROUPS.items()}
    groups[_KNOBS] |= {knob.name for knob in KNOBS} - {"precision"}
    return groups


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        assert isinstance(parser, Parser)
        print(parser.format_help(show_all=True), end="")
        parser.exit()


def _one_of(choices: Sequence[object]) -> str:
    return f"one of {', '.join(map(str, choices))}"
