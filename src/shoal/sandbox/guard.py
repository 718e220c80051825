"""Protects a worker's process while it scores a stranger's text: `install` once, `armed` around each scoring.

First, no `eval` of reasoning-gym or sympy sees a text (`expressions.py`). Second, an audit hook, which cannot be
removed, refuses what a scorer has no reason to do. Third, the operating system sets limits. All three are for what a
scorer does by mistake with a text made to provoke it. The code of a task itself is trusted, as any import is.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from shoal.child import limit

MEMORY = 2 * 2**30  # bytes of address space that scoring may use beyond what the worker has when it is ready

_REFUSED_PREFIXES = (
    *("os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.startfile", "os.system", "os.kill", "subprocess."),
    *("os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink"),
    *("os.truncate", "os.putenv", "os.unsetenv", "shutil.", "tempfile.", "pty.", "webbrowser.", "sqlite3."),
    *("socket.", "urllib.", "http.", "ftplib.", "smtplib.", "imaplib.", "poplib.", "ctypes.", "mmap.", "winreg."),
)
_MATH = {"math_verify", "latex2sympy2_extended"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_armed = False
_refused: list[str] = []
"""What was refused since the guard was armed."""


class Refused(PermissionError):  # noqa: N818 (an attempt, not a fault)
    """A scorer tried something forbidden."""


def install() -> None:
    """Install all of it. Call it when everything that scoring needs has been imported."""
    _replace_eval()
    limit(MEMORY)
    sys.dont_write_bytecode = True  # a module may still be imported late
    sys.addaudithook(_hook)


@contextlib.contextmanager
def armed() -> Iterator[None]:
    """While scoring, the audit hook refuses. Raises `Refused` at the end even if the scorer swallowed a refusal."""
    global _armed
    _refused.clear()
    _armed = True
    try:
        yield
    finally:
        _armed = False
        if _refused:
            raise Refused(f"{_refused[0]} while scoring")


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _armed or not _is_refused(event, arguments):
        return
    _refused.append(event)
    raise Refused(f"{event} while scoring")


def _is_refused(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        _path, _mode, flags = arguments
        return bool(flags & _WRITING)
    if event == "exec":
        # Code that was compiled from a text has no file.
        filename = arguments[0].co_filename
        return filename.startswith("<") and not filename.startswith("<frozen") and not _generated()
    return event.startswith(_REFUSED_PREFIXES)


def _generated() -> bool:
    """Whether the program compiles its own text: sympy for monomials, a dataclass while its module is imported."""
    frame = sys._getframe(3)  # of who calls exec, above this, _is_refused and _hook
    if frame.f_globals.get("__name__") == "sympy.polys.monomials":
        return True
    caller = frame.f_back
    while caller is not None:
        if caller.f_code.co_filename == "<frozen importlib._bootstrap_external>":
            return caller.f_code.co_name == "exec_module"
        caller = caller.f_back
    return False


def _replace_eval() -> None:
    """Replaces `eval` in all loaded modules of reasoning-gym, and sympy's `parse_expr`, which all its parsers call and
    math-verify, too.

    It replaces `simplify` too, which two scorers ask whether something is zero: a wrong answer may take it minutes."""
    if not {"reasoning_gym", "math_verify"} & sys.modules.keys():
        return
    import sympy
    from sympy.parsing import sympy_parser

    from shoal.sandbox.expressions import is_surely_not_zero, safe_eval, safe_parse_expr, safe_parse_number

    original = sympy_parser.parse_expr
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "reasoning_gym":
            vars(module)["eval"] = safe_eval
            if vars(module).get("parse_expr") is original:
                vars(module)["parse_expr"] = safe_parse_number  # puzzle24 and countdown
        elif name.split(".")[0] in _MATH and vars(module).get("parse_expr") is original:
            vars(module)["parse_expr"] = safe_parse_expr
    for package in (sympy, sympy.parsing, sympy_parser):
        vars(package)["parse_expr"] = safe_parse_expr
    vars(sympy_parser)["eval_expr"] = _no_eval
    simplify = sympy.simplify

    def quick_simplify(expression: Any, **options: Any) -> Any:
        return expression if _armed and is_surely_not_zero(expression) else simplify(expression, **options)

    vars(sympy)["simplify"] = quick_simplify


def _no_eval(*_arguments: Any) -> Any:
    raise Refused("sympy's eval is off")
