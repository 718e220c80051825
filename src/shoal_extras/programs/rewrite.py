"""Rewrites programs for an interpreter that an answer shares with its tests: no answer can change its tests, and a
program counts its own steps, so that an endless loop ends at the same place on every node.

    checked("assert f(3) == abs(x)", "plain", ["abs"], "b_")     # "assert plain(f(3)) == plain(b_abs(x))"
    counted("while True: pass", "tick")                          # "while True:\\n    tick()\\n    pass"

An answer may give any name another meaning, also while a test runs. So tests call builtins, helpers and what they
define themselves by names that no answer can know. A step is one turn of a loop or of a comprehension, or one call of a
function that the program defines. What a builtin does in one call (`sum(range(10**12))`) is no step: memory or, at
last, the clock ends that.
"""

import ast
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final


def checked(test: str, plain: str, saved: Collection[str], prefix: str, defined: Collection[str] = ()) -> str:
    """A test as no answer can change it. What it compares or calculates with is passed through `plain`. What is in
    `saved` is called by its name with `prefix`, as it was before the answer ran; what tests define (`defined`: others)
    has such names, too. Methods of what an answer returns are its own. Raises `ValueError` for what is no test."""
    try:
        tree = ast.parse(test)
        own = _everywhere(tree)
        names = {name: prefix + name for name in saved}
        names |= {name: f"{prefix}own_{name}" for name in (set(defined) - set(saved)) | own}
        for name in _fixed(tree):
            names.pop(name, None)
        tree = _Checked(plain, names).visit(tree)
        return ast.unparse(ast.fix_missing_locations(tree))
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None


def defined(tests: Sequence[str]) -> set[str]:
    """What tests define, import or assign, but for what is no test."""
    found = set()
    for test in tests:
        with contextlib.suppress(SyntaxError, RecursionError, MemoryError, ValueError):
            found |= _everywhere(ast.parse(test))
    return found


def secret(setup: str, plain: str, saved: Collection[str], prefix: str) -> tuple[str, set[str]]:
    """The functions and imports of `setup` by names with `prefix`, which call each other, and what is in `saved`, by
    such names; and their names. They calculate with plain data alone, as tests do, where `setup` has no classes."""
    tree = ast.parse(setup)
    tree.body = [one for one in tree.body if isinstance(one, _KEPT | ast.ClassDef)]
    classes = any(isinstance(node, ast.ClassDef) for node in ast.walk(tree))
    functions = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    tree.body = [one for one in tree.body if isinstance(one, _KEPT)]
    local = _fixed(tree) | {name for function in functions for name in bound(function.body)}
    names = bound(tree.body) - local
    tree.body = [one for one in tree.body if bound([one]) & names]
    renamed = {name: prefix + name for name in names | (set(saved) - local)}
    tree = (_Secret(renamed) if classes else _Checked(plain, renamed)).visit(tree)
    return ast.unparse(ast.fix_missing_locations(tree)), names


def bound(body: Sequence[ast.stmt]) -> set[str]:
    """The names that statements define, import or assign, in them or below, but for arguments."""
    return {name for one in body for name in ([] if _is_fixed(one) else _everywhere(one, deep=False))}


class _Secret(ast.NodeTransformer):
    """Gives things other names, wherever they stand."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._named(node.id)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
        node.name = self._named(node.name)
        return self.generic_visit(node)

    visit_ClassDef = visit_FunctionDef

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> ast.AST:
        node.names = list(map(self._named, node.names))
        return node

    visit_Nonlocal = visit_Global

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = node.name and self._named(node.name)
        return self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> ast.AST:
        node.asname = self._names.get(node.asname or node.name, node.asname)
        return node

    def _named(self, name: str) -> str:
        return self._names.get(name, name)


class _Checked(_Secret):
    """See `checked`."""

    def __init__(self, plain: str, names: Mapping[str, str]) -> None:
        super().__init__(names)
        self._plain = plain

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        node.left = self._passed(node.left)
        node.comparators = [self._passed(one) for one in node.comparators]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, _OF_BITS):
            node.left, node.right = self._passed(node.left), self._passed(node.right)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST | list[ast.AST]:
        self.generic_visit(node)
        node.value = self._passed(node.value)
        if not isinstance(node.target, ast.Name):
            return node
        return [ast.Expr(self._passed(ast.Name(node.target.id, ast.Load()))), node]

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            node.operand = self._passed(node.operand)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        counts = isinstance(node.func, ast.Name) and node.func.id in _COUNTING
        of_module = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "math"
        given = [isinstance(one, ast.List | ast.Tuple) or _calls_own(one) for one in node.args]
        self.generic_visit(node)
        if counts or of_module:
            node.args = [self._passed(one) if own else one for one, own in zip(node.args, given, strict=True)]
        return node

    def _passed(self, value: ast.expr) -> ast.expr:
        if isinstance(value, ast.Constant):
            return value
        return ast.Call(ast.Name(self._plain, ast.Load()), [value], [])


_OF_BITS: Final = (ast.BitOr, ast.BitAnd, ast.BitXor, ast.LShift, ast.RShift)
"""Operators that types have, too: int | float."""
_KEPT: Final = ast.Import | ast.ImportFrom | ast.FunctionDef
"""What is copied of a setup."""
_COUNTING: Final = {"abs", "sum", "max", "min", "round", "pow"}
"""Builtins that calculate with what an answer gives them."""
_LAZY: Final = {"map", "filter", "zip", "range", "enumerate", "reversed"}
"""Builtins whose results are no plain data."""


def _calls_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id not in _LAZY


def _fixed(tree: ast.AST) -> set[str]:
    """Names that stand elsewhere as words: of arguments, and of what classes have."""
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return arguments | {name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for name in bound(node.body)}


def _everywhere(tree: ast.AST, deep: bool = True) -> set[str]:
    """The names that `tree` defines, imports or assigns outside of classes. `deep`: also within functions."""
    found, waiting = set(), [tree]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases) if not _is_fixed(node):
                found.update(alias.asname or alias.name for alias in aliases)
        if not isinstance(node, ast.ClassDef if deep else ast.FunctionDef | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return found


def _is_fixed(node: ast.AST) -> bool:
    """Whether this is an import that cannot get another name."""
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return True
    aliases = node.names if isinstance(node, ast.Import | ast.ImportFrom) else []
    return any(alias.name == "*" or ("." in alias.name and not alias.asname) for alias in aliases)


_BLOCKS: Final = (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.AsyncFunctionDef)


def counted(program: str, tick: str) -> str:
    """`program` with a call of `tick`, which returns true, at each step, and TICK_name in place of `__name__`. Raises
    `ValueError` for one that cannot be read or written here."""
    try:
        tree = ast.parse(program)
        for node in list(ast.walk(tree)):
            _count(node, tick)
        return ast.unparse(ast.fix_missing_locations(tree))
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None


def _count(node: ast.AST, tick: str) -> None:
    call = ast.Call(ast.Name(tick, ast.Load()), [], [])
    if isinstance(node, _BLOCKS):
        documented = not isinstance(node, ast.For | ast.AsyncFor | ast.While) and ast.get_docstring(node) is not None
        node.body.insert(int(documented), ast.Expr(call))
    elif isinstance(node, ast.comprehension):
        node.ifs.insert(0, call)
    elif isinstance(node, ast.Lambda):
        node.body = ast.BoolOp(ast.And(), [call, node.body])
    elif isinstance(node, ast.Name) and node.id == "__name__":  # which the interpreter keeps at "__main__"
        node.id = f"{tick}_name"
