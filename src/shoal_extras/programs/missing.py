"""Whether a program failed because the sandbox's language lacks something that Python has.

    missing("AttributeError: 'int' object has no attribute 'bit_length'", program)     # True: Python's int has it
    missing("AttributeError: 'int' object has no attribute 'size'", program)           # False: so Python fails, too

Nobody can say whether such a program is right. In doubt it is not called wrong: a module that is missing here counts as
missing whether Python has it or not.
"""

from __future__ import annotations

import ast
import builtins
import re
import types
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Final

_SAYS_SO: Final = re.compile(
    r"not yet support|is not implemented|^NotImplementedError: .* not supported|^TypeError: cannot create '[\w.]+' inst"
)
_NO_MODULE: Final = re.compile(r"^(ModuleNotFoundError|ImportError)\b|^AttributeError: module '")
_NO_NAME: Final = re.compile(r"^NameError: name '(\w+)' is not defined")
_NO_ATTRIBUTE: Final = re.compile(r"^AttributeError: (?:type object )?'([\w.]+)'(?: object)? has no attribute '(\w+)'")
_SEVERAL: Final = (dict, Counter, OrderedDict, defaultdict)
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    **{kind.__name__: (kind,) for kind in vars(builtins).values() if isinstance(kind, type)},
    **{kind.__name__: _SEVERAL for kind in _SEVERAL},
    "deque": (deque,),
    "collections.deque": (deque,),
    "function": (types.FunctionType,),
    "builtin_function_or_method": (types.BuiltinFunctionType, type),
}
"""What the language calls a type, and what it may be in Python."""
_NEVER_CALLED: Final = frozenset(
    "__len__ __bool__ __lt__ __le__ __gt__ __ge__ __ne__ __format__ __reversed__ __getattr__ __getattribute__ "
    "__setattr__ __delattr__ __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ior__ __iand__".split()
)
"""Special methods of a program's own classes that Python calls and Monty 1.4 does not."""


def missing(error: str, program: str) -> bool:
    """`error`: the type and message with which `program` failed."""
    if _SAYS_SO.search(error) or _NO_MODULE.match(error):
        return True
    if (name := _NO_NAME.match(error)) and hasattr(builtins, name[1]):
        return True
    if attribute := _NO_ATTRIBUTE.match(error):
        kinds = _TYPES.get(attribute[1], (object,))
        if "." in attribute[1] and attribute[1] not in _TYPES:  # of a library, and not of the program
            return True
        if any(hasattr(kind, attribute[2]) for kind in kinds):
            return True
    return behaves_differently(program, asserted=error.startswith("AssertionError"))


def behaves_differently(program: str, asserted: bool) -> bool:
    """Whether the failure of `program` (also for want of time or memory) may come from the sandbox: Python might
    run it. Generators, `map`, `filter`, `zip` and `enumerate` are worked off at once here, and some special methods
    are never called. `asserted`: it ran, and a test found it wrong."""
    try:
        nodes = list(ast.walk(ast.parse(program)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    if any(isinstance(node, ast.FunctionDef) and node.name in _NEVER_CALLED for node in nodes):
        return True
    return not asserted and any(map(_is_lazy, nodes))


def _is_lazy(node: ast.AST) -> bool:
    """Whether Python would leave out work here that this language does."""
    match node:
        case ast.Import(names=names):
            return any(alias.name == "itertools" for alias in names)
        case ast.ImportFrom(module="itertools"):
            return True
        case ast.Call(func=ast.Name(id="next" | "iter")):
            return True
        case ast.Call(func=ast.Name(id="any" | "all"), args=[ast.GeneratorExp() | ast.Call()]):
            return True
    return False
