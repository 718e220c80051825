"""The rooms of src/shoal: arrows point down only, no circle of files, no private name of another package."""

from __future__ import annotations

import ast
from pathlib import Path

import shoal

ROOT = Path(shoal.__file__).parent
LAYERS = [
    {"errors", "untrusted", "rollout", "protocols"},
    {"config", "identity"},
    {"tasks"},
    {"sandbox"},
    {"parallel"},
    {"policy"},
    {"learn"},
    {"rewards"},
    {"selection"},
    {"swarm"},
    {"evaluation"},
    {"directory"},
    {"node"},
    {"runs"},
    {"integrations"},
    {"export"},
    {"cli"},
    {"api"},
    {"apps"},
    {"__init__", "__main__"},
]
"""From the ground up. A module may import from its own room and from rooms below it. `shoal.__version__` is for all."""
HEIGHT = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}
FILES = {".".join(("shoal", *path.relative_to(ROOT).with_suffix("").parts)): path for path in ROOT.rglob("*.py")}
MODULES = {name.removesuffix(".__init__"): path for name, path in FILES.items()}


def imports(path: Path, everything: bool) -> set[tuple[str, str]]:
    """What a file imports from shoal: (module, name). `everything`: in functions and for the type checker, too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if everything else iter(tree.body)
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "shoal":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add((inner, "") if inner in MODULES else (node.module, alias.name))
        elif isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names if alias.name.split(".")[0] == "shoal"}
    return found


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def test_every_room_has_its_place() -> None:
    assert {room(module) for module in MODULES} == set(HEIGHT)


def test_arrows_point_down_only() -> None:
    up = [
        f"{module} -> {target}"
        for module, path in MODULES.items()
        for target, name in imports(path, everything=True)
        if (HEIGHT[room(target)] > HEIGHT[room(module)] and (target, name) != ("shoal", "__version__"))
        or (HEIGHT[room(target)] == HEIGHT[room(module)] and room(target) != room(module) and HEIGHT[room(module)])
    ]
    assert up == []


def test_applications_know_what_they_share_alone() -> None:
    """`serving` is for all of them, and the window shows the judge's records."""
    allowed = {("judge", "serving"), ("watch", "serving"), ("human", "serving"), ("watch", "judge")}
    found = {
        (module.split(".")[2], target.split(".")[2])
        for module, path in MODULES.items()
        for target, _ in imports(path, everything=True)
        if room(module) == room(target) == "apps" and module.count(".") > 1 and target.count(".") > 1
    }
    assert {pair for pair in found if pair[0] != pair[1]} <= allowed


def test_no_circle_of_files() -> None:
    arrows = {module: {target for target, _ in imports(path, everything=True)} for module, path in MODULES.items()}
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " -> ".join((*way[way.index(module) :], module))
        if module in done:
            return
        for target in sorted(arrows.get(module, ())):
            visit(target, (*way, module))
        done.add(module)

    for module in sorted(set(MODULES) - {"shoal"}):  # whose names are imported when they are first used
        visit(module, ())


def test_no_private_name_of_another_package() -> None:
    private = [
        f"{module}: {target}.{name}"
        for module, path in MODULES.items()
        for target, name in imports(path, everything=True)
        if (name or target.rpartition(".")[2]).startswith("_")
        and name != "__version__"
        and target.rpartition(".")[0] != module.rpartition(".")[0]
    ]
    assert private == []
