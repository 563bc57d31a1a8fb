"""What a release is made of: one version, a changelog in its form, and the same checks in every place."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from autoauto.records.installation import VERSION

HEADING = re.compile(r"## \[(?:Unreleased|(?P<version>\d+\.\d+\.\d+))\](?(version) - \d{4}-\d\d-\d\d)")
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
WORKFLOW = Path(".github/workflows/release.yaml")

Texts = Mapping[Path, str]


def test_the_build_reads_the_version_where_the_program_does(root: Path, texts: Texts) -> None:
    build = tomllib.loads(texts[Path("pyproject.toml")])["tool"]["hatch"]["version"]
    (line,) = re.findall(build["pattern"], (root / build["path"]).read_text(encoding="utf-8"))
    assert line == VERSION


@pytest.mark.parametrize("name", ["pyproject.toml", "CITATION.cff"])
def test_no_other_file_has_the_version(name: str, texts: Texts) -> None:
    bounds_of_packages = r"[<>=~]+[\d.]+"
    assert VERSION not in re.sub(bounds_of_packages, "", texts[Path(name)])


def test_the_changelog_has_the_form_of_keep_a_changelog(texts: Texts) -> None:
    lines = texts[Path("CHANGELOG.md")].splitlines()
    headings = [HEADING.fullmatch(line) for line in lines if line.startswith("## ")]
    assert headings
    assert all(headings)
    assert {line.removeprefix("### ") for line in lines if line.startswith("### ")} <= KINDS
    released = [match["version"] for match in headings if match and match["version"]]
    assert released == sorted(released, key=lambda text: tuple(map(int, text.split("."))), reverse=True)
    assert released[:1] in ([VERSION], [])  # before the first release there is none


def test_a_commit_is_checked_by_the_programs_of_the_clean_clone(texts: Texts) -> None:
    (local,) = yaml.safe_load(texts[Path(".pre-commit-config.yaml")])["repos"]
    entries = {hook["entry"] for hook in local["hooks"]}
    run = texts[Path(".ci/run")]
    assert entries == set(re.findall(r"\.venv/bin/(?:ruff|mypy)(?: [a-z-]+)+", run))
    assert len(entries) == 3


def test_a_tag_tests_the_clean_clone_and_then_builds(texts: Texts) -> None:
    workflow = yaml.safe_load(texts[WORKFLOW])
    commands = {name: [step.get("run", "") for step in job["steps"]] for name, job in workflow["jobs"].items()}
    assert ".ci/run" in commands["test"]
    assert workflow["jobs"]["build"]["needs"] == "test"
    assert any("python -m build" in command for command in commands["build"])
    assert workflow[True]["push"]["tags"] == ["v*"]  # YAML 1.1 reads the key "on" as a truth value


@pytest.mark.parametrize("form", ["fault", "wish"])
def test_a_form_for_issues_has_what_the_host_reads(form: str, texts: Texts) -> None:
    read = yaml.safe_load(texts[Path(f".github/ISSUE_TEMPLATE/{form}.yaml")])
    assert {"name", "description", "body"} <= set(read)
    assert all({"type", "id", "attributes"} <= set(field) for field in read["body"])
    assert all(field["attributes"]["label"] for field in read["body"])
