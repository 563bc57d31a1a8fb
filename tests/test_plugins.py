"""What packages add by entry points: installed ones are folders on Python's path here."""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from autoauto import plugins
from autoauto.cli.main import main
from autoauto.engines.registry import ENGINES
from autoauto.exporters.exporter import Exporter
from autoauto.exporters.registry import FORMATS
from autoauto.plugins import OURS, Registry
from autoauto.profile.importers.registry import IMPORTERS
from autoauto.records.errors import BadInput
from autoauto.targets.registry import TARGETS

ROOT = Path(__file__).parents[1]
OF_ENGINES = {engine.launcher.to for engine in ENGINES.values()}
WITH_ENTRY_POINTS = tuple(name for name in FORMATS if name not in OF_ENGINES)
REGISTRIES: tuple[Registry[object], ...] = (TARGETS, ENGINES, FORMATS, IMPORTERS)  # type: ignore[assignment]
EXPORTER = """
from autoauto.engines.registry import ENGINES
from autoauto.exporters.exporter import Exporter
{name} = Exporter("{name}", "nobody", (), lambda *_: None, lambda *_: iter(()))
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make a package of one module, installed with its entry points of the group of exporters."""
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.registrations.cache_clear()

    def install(name: str, program: str, **points: str) -> None:
        (tmp_path / f"{name}.py").write_text(program)
        folder = tmp_path / f"{name}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        lines = [f"{point} = {name}:{value}" for point, value in points.items()]
        (folder / "entry_points.txt").write_text("\n".join(["[autoauto.exporters]", *lines]))

    return install


@pytest.fixture(autouse=True)
def forget() -> None:
    """The packages of a test are not those of the next."""
    plugins.registrations.cache_clear()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_an_installed_package_adds_a_value_which_is_loaded_when_it_is_asked_for(install: Install) -> None:
    install("plain", EXPORTER.format(name="paper"), paper="paper")
    registry = Registry("exporter", Exporter)
    assert registry.names == (*WITH_ENTRY_POINTS, "paper")
    assert "plain" not in sys.modules
    assert registry["paper"].summary == "nobody"
    assert list(registry) == [*registry.names]
    assert len(registry) == len(registry.names)


@pytest.mark.parametrize(
    ("program", "wrong"),
    [
        ("import no_such_module", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise OSError('line 1\\nline 2')", "cannot be loaded: OSError: line 1 line 2"),
        ("paper = 3", "is no Exporter but a int"),
        (EXPORTER.format(name="other") + "paper = other", "calls itself 'other'"),
        ("", "cannot be loaded: AttributeError: module 'broken' has no attribute 'paper'"),
    ],
)
def test_a_broken_one_is_left_out_with_one_warning(
    install: Install, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, program: str, wrong: str
) -> None:
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    install("broken", program, paper="paper")
    registry = Registry("exporter", Exporter)
    assert "paper" in registry.names
    for _ in range(2):
        assert list(registry) == list(WITH_ENTRY_POINTS)
        assert "paper" not in registry
        with pytest.raises(BadInput, match=r"^a format is one of auto-pipeline, .*, triton, got 'paper'$"):
            registry.named("paper", "a format")
    expected = f"autoauto: the exporter 'paper' of broken is left out, it {wrong}; repair or uninstall broken"
    assert warnings(caplog) == [expected]


def test_a_value_of_our_own_comes_among_ours_and_needs_no_entry_point(install: Install) -> None:
    install("plain3", EXPORTER.format(name="auto"), auto="auto")
    paper = FORMATS["onnx"]
    registry = Registry("exporter", Exporter, own=lambda: {"paper": paper})
    assert registry["paper"] is paper
    assert registry.names == (*sorted((*WITH_ENTRY_POINTS, "paper")), "auto")


def test_what_is_wrong_with_a_value_is_for_its_registry_to_say(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("checked", EXPORTER.format(name="paper"), paper="paper")
    registry = Registry("exporter", Exporter, check=lambda each: f"is for {each.summary}")
    assert list(registry) == list(WITH_ENTRY_POINTS)
    assert "'paper' of checked is left out, it is for nobody; repair" in warnings(caplog)[0]


def test_a_second_of_a_name_is_left_out_with_a_warning_that_names_both(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("second", "first"):
        install(name, EXPORTER.format(name="paper"), paper="paper", onnx="paper")
    registry = Registry("exporter", Exporter)
    assert registry["paper"].name == "paper"
    assert registry["onnx"] is FORMATS["onnx"]
    rest = "has one of this name; uninstall one of the two"
    assert sorted(warnings(caplog)) == [
        f"autoauto: the exporter 'onnx' of first is left out, autoauto {rest}",
        f"autoauto: the exporter 'onnx' of second is left out, autoauto {rest}",
        f"autoauto: the exporter 'paper' of second is left out, first {rest}",
    ]


def test_a_checkout_has_what_its_pyproject_registers() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    ours = {
        group: {each.point.name: each.point.value for each in points if each.distribution == OURS}
        for group, points in plugins.registrations().items()
    }
    assert ours == groups


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.names[0])
def test_all_of_ours_can_be_loaded(registry: Registry[object]) -> None:
    assert list(registry) == list(registry.names)
    assert all(getattr(value, "name", None) == name for name, value in registry.items())


def test_an_installed_package_has_what_its_metadata_registers(install: Install, tmp_path: Path) -> None:
    install("autoauto", "", onnx="EXPORTER")
    shutil.move(tmp_path / "autoauto.py", tmp_path / "other.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "_PROJECT", tmp_path / "pyproject.toml")
        points = plugins.registrations()["autoauto.exporters"]
        assert [(each.point.value, each.distribution) for each in points] == [("autoauto:EXPORTER", OURS)]


def test_a_copy_that_was_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plugins, "_PROJECT", tmp_path / "pyproject.toml")
    monkeypatch.setattr(plugins, "distributions", lambda: [])
    with pytest.raises(BadInput, match=r"autoauto must be installed or in its checkout, .* is neither; install it"):
        plugins.registrations()


def test_an_unknown_name_lists_all_that_are_known(
    install: Install, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("plain2", EXPORTER.format(name="paper"), paper="paper")
    monkeypatch.setattr("autoauto.cli.commands.artifacts.export.FORMATS", Registry("exporter", Exporter))
    assert main(["export", "resnet50", "--to", "stone", "--output", "x"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "triton" in error
    assert "paper" in error
