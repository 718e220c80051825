"""What is published: the package, its metadata, and the files that say how it is built and cited."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_docs import script

import shoal

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PACKAGES = ("shoal", "shoal_extras", "shoal_host", "shoal_lab", "shoal_web")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").iterdir()}
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


def on_disk() -> set[str]:
    """All files of the packages."""
    files = (path for name in PACKAGES for path in (SOURCE / name).rglob("*"))
    return {str(path.relative_to(SOURCE)) for path in files if path.is_file() and "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from a copy, with what is installed and without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(SOURCE, folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    done = subprocess.run([sys.executable, "-c", BUILD, "dist"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [path] = (folder / "dist").glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_packages_and_no_other(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if not name.startswith("shoal-")}
    assert on_disk() - names == set(), "name them in pyproject.toml, [tool.setuptools.package-data]"
    assert names - on_disk() == set()
    needed = {"shoal/py.typed", "shoal/guppy/model.safetensors", "shoal/tasks/suites.toml"}
    assert needed | {"shoal_web/watch/static/index.html", "shoal_web/human/static/index.html"} <= names


@pytest.mark.slow
def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    info = f"shoal-{shoal.__version__}.dist-info"
    metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert metadata["Version"] == shoal.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["project"]["optional-dependencies"])
    assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert b"shoal = shoal.cli.main:main" in wheel.read(f"{info}/entry_points.txt")


def test_all_say_the_same_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    assert {PROJECT["project"]["version"], citation["version"], newest[1]} == {shoal.__version__}


def test_the_versions_of_python_are_those_that_are_tried() -> None:
    matrix = WORKFLOWS["ci"]["jobs"]["quick"]["strategy"]["matrix"]["python"]
    assert matrix == PYTHONS
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_may_do_little(name: str) -> None:
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 90
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@v\d+(\.\d+)*", step["uses"]), "pinned by a tag of a version"
            # What somebody else names (a branch, a title) never becomes part of a shell's program.
            assert "${{" not in step.get("run", "")


def test_a_release_needs_no_password() -> None:
    jobs = WORKFLOWS["release"]["jobs"]
    assert WORKFLOWS["release"][True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads `on` as true
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert jobs["publish"]["needs"] == "attest"
    assert jobs["attest"]["needs"] == "build"
    may_write = [name for name, job in jobs.items() if "write" in job["permissions"].get("contents", "")]
    assert may_write == ["announce"]  # which runs nothing of the repository
    assert not any("checkout" in step.get("uses", "") for step in jobs["announce"]["steps"])


def test_what_pypi_shows_of_the_readme_has_whole_addresses() -> None:
    published = script("published")
    text = published.readme((ROOT / "README.md").read_text())
    assert "(https://raw.githubusercontent.com/shoal-rl/shoal/main/docs/pictures/demo.svg)" in text
    assert "(https://github.com/shoal-rl/shoal/blob/main/docs/start/first-run.md)" in text
    assert published.readme(text) == text


def test_the_newest_version_says_what_is_new_in_a_few_words() -> None:
    published = script("published")
    words = published.notes((ROOT / "CHANGELOG.md").read_text()).split()
    assert 50 < len(words) < 300
    with pytest.raises(ValueError, match="What is new for you"):
        published.notes("# Changelog\n\n## 1.0\n\n### Added\n- x\n\n## 0.9\n\n### What is new for you\n- y\n")
