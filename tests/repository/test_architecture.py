"""The packages and rooms of src: arrows point down only, no circle of files, no private name of another package."""

from __future__ import annotations

import ast
from pathlib import Path

import shoal

SRC = Path(shoal.__file__).parents[1]
PACKAGES = {
    "shoal": set(),
    "shoal_extras": {"shoal"},
    "shoal_web": {"shoal"},
    "shoal_host": {"shoal", "shoal_web"},
    "shoal_lab": {"shoal"},
}
"""What each package may import, besides itself."""
LAYERS = [
    {"child", "errors", "inside", "signals", "untrusted", "rollout", "protocols"},
    {"answers"},
    {"config"},
    {"identity"},
    {"wire"},
    {"tasks"},
    {"sandbox"},
    {"parallel"},
    {"policy"},
    {"learn"},
    {"rewards"},
    {"selection"},
    {"admission"},
    {"transports"},
    {"membership"},
    {"evaluation"},
    {"node"},
    {"runs"},
    {"display"},
    {"cli"},
    {"api"},
    {"__init__", "__main__"},
]
"""The rooms of the core, from the ground up. A module may import from its own room and from rooms below it.
`shoal.__version__` is for all."""
HEIGHT = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}
FILES = {
    ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in (SRC / package).rglob("*.py")
}


def imports(path: Path) -> set[tuple[str, str]]:
    """What a file imports from our packages, in functions and for the type checker, too: (module, name)."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and package(node.module) in PACKAGES:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add((inner, "") if inner in FILES else (node.module, alias.name))
        elif isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names if package(alias.name) in PACKAGES}
    return found


def package(module: str) -> str:
    return module.partition(".")[0]


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


ARROWS = {module: imports(path) for module, path in FILES.items()}


def test_every_room_of_the_core_has_its_place() -> None:
    assert {room(module) for module in FILES if package(module) == "shoal"} == set(HEIGHT)


def test_packages_import_only_what_they_stand_on() -> None:
    wrong = [
        f"{module} -> {target}"
        for module, arrows in ARROWS.items()
        for target, _ in arrows
        if package(target) not in {package(module), *PACKAGES[package(module)]}
    ]
    assert wrong == []


def test_arrows_in_the_core_point_down_only() -> None:
    up = [
        f"{module} -> {target}"
        for module, arrows in ARROWS.items()
        for target, name in arrows
        if package(module) == package(target) == "shoal" and (target, name) != ("shoal", "__version__")
        if HEIGHT[room(target)] > HEIGHT[room(module)]
        or (HEIGHT[room(target)] == HEIGHT[room(module)] and room(target) != room(module) and HEIGHT[room(module)])
    ]
    assert up == []


def test_no_circle_of_files() -> None:
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " -> ".join((*way[way.index(module) :], module))
        if module in done:
            return
        for target in sorted({target for target, _ in ARROWS.get(module, ())}):
            visit(target, (*way, module))
        done.add(module)

    for module in sorted(set(FILES) - {"shoal"}):  # whose names are imported when they are first used
        visit(module, ())


def test_no_private_name_of_another_package() -> None:
    private = [
        f"{module}: {target}.{name}"
        for module, arrows in ARROWS.items()
        for target, name in arrows
        if (name or target.rpartition(".")[2]).startswith("_")
        and name != "__version__"
        and target.rpartition(".")[0] != module.rpartition(".")[0]
    ]
    assert private == []
