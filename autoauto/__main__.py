"""The command `autoauto`, also `python -m autoauto`: `main` prints one line for Ctrl-C, also during imports."""

import sys


def main() -> int:
    """Import the CLI, then run one command; see `autoauto.cli.main`."""
    try:
        from autoauto.cli.main import main as run
    except KeyboardInterrupt:
        print("autoauto: interrupted", file=sys.stderr)
        code = 130
    else:
        code = run()
    # When Ctrl-C interrupts an `exec`, for example that of a dataclass, Python ends with this signal even though the
    # KeyboardInterrupt was caught. The next `exec` resets that state.
    exec("")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
