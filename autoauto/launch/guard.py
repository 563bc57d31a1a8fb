"""A program that runs an engine as long as its input is open: `main`. It needs Python 3.8 and nothing else.

    search ── pipe ──▶ guard ──▶ engine ──▶ its processes
       or ── ssh ───▶                        (orphans return to the guard)

However the search ends, its end of the pipe is closed. Then the guard ends the engine with all that it started, within
`GRACE_S` and a little. Its output has one line, the port and the process; the engine writes to its error output.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

GRACE_S = 2.0
"""After so long an engine that was asked to end is killed."""
MISSING = 127
"""Exit code where there is no such program, as of shells."""
_PORT = "{port}"
_PDEATHSIG, _NAME, _CHILD_SUBREAPER = 1, 15, 36


def main() -> None:
    """Run what the first line of the input says: words, environment, files, at_end."""
    with open(0, "rb", buffering=0, closefd=False) as pipe:
        task = json.loads(pipe.readline())
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _end)
    ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1)
    ctypes.CDLL(None).prctl(_NAME, b"engine-guard")  # `CLEANER`, which the end of our worker waits for
    port = free_port()
    folder = os.path.join(tempfile.gettempdir(), f"autoauto-engine-{os.getpid()}") if task["files"] else ""
    engine = None
    try:
        for name, text in task["files"].items():
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        engine = _started(task, str(port), folder)
        print(json.dumps({"port": port, "pid": engine.pid}), flush=True)
        while engine.poll() is None and not select.select([0], [], [], 0.1)[0]:
            pass
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if engine is not None and engine.poll() is None:
            _ask_to_end(engine)
        end_children()
        _run_at_end(task["at_end"])
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(engine.returncode if engine.returncode >= 0 else 128 - engine.returncode)


def free_port() -> int:
    """A port that the system gives to no other process for a minute, and that a server may take by its number.

    It waits for late packets of a connection that this process has had with itself.
    """
    with socket.socket() as listening:
        listening.bind(("", 0))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # so that a server that also says so may
        listening.listen(1)
        port = int(listening.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port)):
            listening.accept()[0].close()
    return port


def _started(task: dict, port: str, folder: str) -> subprocess.Popen:  # type: ignore[type-arg]
    words = [word.replace(_PORT, port) for word in task["words"]]
    try:
        return subprocess.Popen(
            words,
            env={**os.environ, **task["environment"]},
            cwd=folder or None,
            stdin=subprocess.DEVNULL,
            stdout=2,
            start_new_session=True,
            # It calls the kernel alone, and there are no threads.
            preexec_fn=lambda: ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509
        )
    except OSError as error:
        print(f"{words[0]}: {error.strerror}", file=sys.stderr, flush=True)
        sys.exit(MISSING)


def _end(*_: object) -> None:
    raise SystemExit(0)


def _ask_to_end(engine: subprocess.Popen) -> None:  # type: ignore[type-arg]
    try:
        os.killpg(engine.pid, signal.SIGTERM)
        engine.wait(GRACE_S)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        engine.kill()
    engine.wait()


def end_children() -> None:
    """Kill all that this process has started, to which orphans return, and wait until nothing is left."""
    while True:
        parents = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", errors="replace") as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        family = [os.getpid()]
        for each in family:  # which grows on the way
            family += [child for child, parent in parents.items() if parent == each]
        for pid in family[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def _run_at_end(words: list) -> None:  # type: ignore[type-arg]
    """Twice: what was about to be made the first time is there a second later."""
    if not words:
        return
    for pause_s in (0.0, 1.0):
        time.sleep(pause_s)
        subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )


if __name__ == "__main__":
    main()
