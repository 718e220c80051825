"""The documentation: links lead somewhere, generated pages are up to date, and the folder stays small."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

import shoal

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
OUTSIDE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"]
MOST_BYTES = 6_000_000
LINK = re.compile(r"\]\(([^()\s]+(?:\([^()]*\))?)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


@pytest.mark.parametrize("page", [*PAGES, *OUTSIDE], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_picture_of_a_page_is_there(page: Path) -> None:
    """Zensical checks links between pages and their anchors; this checks pictures, too."""
    for target in LINK.findall(CODE.sub("", page.read_text())):
        path = unquote(target.partition("#")[0])
        if path and "://" not in path:
            found = (page.parent / path).resolve()
            assert found.exists(), f"{page}: {target}"
            assert page in OUTSIDE or found.is_relative_to(DOCS), f"{page}: {target} is not part of the site"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [page for page in PAGES if str(page.relative_to(DOCS)) not in navigation] == []


def test_every_picture_is_shown() -> None:
    """By a page or by the README."""
    text = unquote("".join(page.read_text() for page in (*PAGES, ROOT / "README.md")))
    pictures = [path for kind in ("*.png", "*.svg") for path in DOCS.rglob(kind)]
    assert pictures
    assert [path for path in pictures if path.name not in text] == []


def test_the_settings_page_is_what_its_script_writes() -> None:
    settings_page = script("settings_page")
    assert settings_page.PAGE.read_text() == settings_page.page(), "run scripts/settings_page.py"


def test_the_api_page_has_the_whole_public_api() -> None:
    page = (DOCS / "reference" / "api.md").read_text()
    assert set(re.findall(r"^::: shoal\.(\w+)$", page, re.MULTILINE)) == set(shoal.__all__)


def test_examples_in_public_docstrings_are_indented() -> None:
    """Otherwise the reference shows them as prose: an example at the end has lost its indentation."""
    for name, module in shoal._MODULE_OF.items():
        tree = ast.parse((ROOT / "src" / Path(*module.split("."))).with_suffix(".py").read_text())
        [found] = [n for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == name]
        docstring = ast.get_docstring(found) or ""
        assert docstring, name
        assert [block for block in docstring.split("\n\n") if _is_code(block)] == [], name


def test_the_folder_stays_small() -> None:
    assert sum(path.stat().st_size for path in DOCS.rglob("*") if path.is_file()) <= MOST_BYTES


def _is_code(block: str) -> bool:
    """Whether an unindented block is Python that does something."""
    try:
        return not block.startswith(" ") and any(mark in block for mark in "=(") and bool(ast.parse(block))
    except SyntaxError:
        return False


def script(name: str) -> ModuleType:
    """The module `scripts/NAME.py`."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
