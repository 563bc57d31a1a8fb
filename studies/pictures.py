"""The pictures of README, of real studies: `python studies/pictures.py [--check] [FOLDER]`.

Chromium (a program of that name, or `CHROMIUM`) takes them of the pages that `autoauto report` and its charts make,
light and dark. Beside them `pages.json` says what they show: the answer, and a digest of the structure of the page and
of its style sheet. `--check` makes the pages again, and takes no picture: it names those that are out of date. The page
of a search on this machine is measured, so no second one is equal: of it the style sheet is compared alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from autoauto.cli.main import main as autoauto
from autoauto.report.charts.objectives import objectives_chart
from autoauto.report.charts.svg import STYLE
from autoauto.report.html import document, figure, write_page
from autoauto.study.analysis.best import summarise_study
from autoauto.study.store.study import join_study

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
MAX_BYTES = 200_000


class Picture(NamedTuple):
    """A picture: the search of its study, and the size of the window."""

    search: tuple[str, ...]
    width: int
    height: int


REPORT = Picture(("resnet50", "--cluster", "bow-2000"), 1000, 765)
_CHAT = ("--isl", "2000", "--osl", "500", "--tpot", "50")
GPUS = Picture(("Qwen/Qwen3-32B", "--cluster", "h100_sxm-8", *_CHAT), 1000, 640)
CPUS = Picture(("resnet50", "--cluster", "cpu", "--runtime", "onnxruntime", "--batch-size", "1,4"), 1000, 700)
FRONT = Picture(("--config", str(ROOT / "studies" / "resnet50-trade.toml")), 640, 610)
PICTURES = {"report": REPORT, "gpus": GPUS, "cpus": CPUS, "front": FRONT}
MEASURED = ("cpus",)
"""Pages whose numbers processes of this machine give."""


def report_page(name: str, storage: str, folder: Path) -> str:
    """The page of a search of README, as the command writes it."""
    page = folder / f"{name}.html"
    _run("search", *PICTURES[name].search, "--study-name", name, "--storage", storage)
    _run("report", name, "--storage", storage, "--html", str(page))
    return page.read_text(encoding="utf-8")


def front_page(storage: str) -> str:
    """A page with the front of throughput against latency alone."""
    _run("search", *FRONT.search, "--study-name", "front", "--storage", storage)
    chart = objectives_chart(summarise_study(join_study(storage, "front"), storage))
    assert chart is not None
    return document("front", "resnet50 on bow-2000", ["objective throughput, latency"], figure(chart))


def _run(*arguments: str) -> None:
    with open(os.devnull, "w", encoding="utf-8") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
        exit_code = autoauto(arguments)
    assert exit_code == 0, arguments


def pages(besides: Collection[str] = ()) -> dict[str, str]:
    """The HTML of all pictures but some."""
    with tempfile.TemporaryDirectory() as folder:
        storage = f"sqlite:///{folder}/pictures.db"
        reports = [name for name in PICTURES if name not in (*besides, "front")]
        made = {name: report_page(name, storage, Path(folder)) for name in reports}
        return {**made, "front": front_page(storage)}


def shown(page: str, *, measured: bool = False) -> dict[str, str]:
    """What a picture of a page shows: the answer, and a digest of the kinds of its elements and of its style sheet."""
    if measured:
        return {"answer": "", "digest": hashlib.sha256(STYLE.read_bytes()).hexdigest()[:16]}
    body = page.partition("<body>")[2]
    elements = sorted(set(re.findall(r"<(\w+)(?: [^>]*?class=\"([^\"]*)\")?", body)))
    answer = re.search(r'class="big">([^<]*)', body)
    text = json.dumps(elements) + STYLE.read_text(encoding="utf-8")
    return {"answer": answer[1].strip() if answer else "", "digest": hashlib.sha256(text.encode()).hexdigest()[:16]}


def take(page: str, size: Picture, path: Path, *, dark: bool) -> None:
    """Take a picture of a page."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "page.html"
        write_page(page, source)
        window = f"--window-size={size.width},{size.height}"
        theme = ["--blink-settings=preferredColorScheme=0"] if dark else []
        command = [
            os.environ.get("CHROMIUM", "chromium"),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            window,
            *theme,
        ]
        done = subprocess.run(
            [*command, "--hide-scrollbars", f"--screenshot={path}", source.as_uri()], capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()


def changed(made: Mapping[str, str], folder: Path) -> list[str]:
    """The pictures that no longer show their page."""
    stored = json.loads((folder / "pages.json").read_text(encoding="utf-8"))
    described = {name: shown(page) for name, page in made.items()}
    described |= {name: shown("", measured=True) for name in MEASURED}
    return [name for name, what in described.items() if stored[name] != what]


def main() -> int:
    """Take the pictures, or check them.

    Returns:
        1 when a picture is out of date.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    args = parser.parse_args()
    made = pages(MEASURED if args.check else ())
    if args.check:
        for name in (names := changed(made, args.folder)):
            print(f"{name}: the page has changed; run studies/pictures.py, and look at the pictures")
        return 1 if names else 0
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, size in PICTURES.items():
        for dark in (False, True):
            path = args.folder / f"{name}-{'dark' if dark else 'light'}.png"
            take(made[name], size, path, dark=dark)
            print(f"{path.name}: {path.stat().st_size:,} bytes")
    described = json.dumps({name: shown(page, measured=name in MEASURED) for name, page in made.items()}, indent=2)
    (args.folder / "pages.json").write_text(described + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
