"""`python -m autoauto`, and the command `autoauto`: Ctrl-C is one line while it still loads, too."""

import sys


def main() -> int:
    """Load the door, then run one command; see `autoauto.cli.main`."""
    try:
        from autoauto.cli.main import main as run
    except KeyboardInterrupt:
        print("autoauto: interrupted", file=sys.stderr)
        code = 130
    else:
        code = run()
    # An interrupt that leaves an exec, as of a dataclass that is being made, is one that Python will die of at its end,
    # though it was caught; the next exec makes it forget.
    exec("")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
