"""A terminal that lacks characters, and readers that go away, end no command."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs a shell")

CODE = """
import sys
from rich.console import Console
from shoal.cli.main import make_streams_last
make_streams_last()
print("before \\u2192 after: gro\\xdf \\U0001f41f")
Console().print("table \\u2192")
print("problem \\u2192", file=sys.stderr)
for _ in range(20_000):
    print("line")
sys.stdin.read()
open(sys.argv[1], "w").write("done")
"""


def shell(line: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "CODE": CODE, "PYTHON": sys.executable, "PYTHONUTF8": "0", **variables}
    return subprocess.run(["sh", "-c", line], env=environment, capture_output=True, check=False)


@pytest.mark.parametrize(
    ("encoding", "first"),
    [
        ("ascii", b"before ? after: gro? ?"),
        ("cp1252", b"before ? after: gro\xdf ?"),
        ("utf-8", "before → after: groß 🐟".encode()),
    ],
)
def test_characters_that_a_terminal_lacks(tmp_path: os.PathLike[str], encoding: str, first: bytes) -> None:
    done = shell(f'"$PYTHON" -c "$CODE" {tmp_path}/out </dev/null', PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, first)
    assert done.stderr.splitlines() == ["problem →".encode(encoding, "replace")]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "how", ["</dev/null | head -1", "2>&1 </dev/null | true", ">&- 2>&- <&-", ">/dev/full 2>&1 </dev/null"]
)
def test_readers_that_are_gone(tmp_path: os.PathLike[str], how: str, unbuffered: str) -> None:
    command = f'"$PYTHON" -c "$CODE" {tmp_path}/out'
    done = shell(f"({command}; echo $? > {tmp_path}/code) {how}", PYTHONUNBUFFERED=unbuffered)
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr
    with open(os.path.join(tmp_path, "code")) as code, open(os.path.join(tmp_path, "out")) as out:
        assert (code.read(), out.read()) == ("0\n", "done")
