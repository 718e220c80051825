"""One identity runs one node of a swarm at a time on a machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.identity.lock import only_node

pytest.importorskip("fcntl", reason="locks of files are POSIX's")

HOLD = """
import sys
from pathlib import Path
from shoal.identity.lock import only_node
with only_node(Path(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Identity.load_or_create(tmp_path / "identity")
    return tmp_path / "identity"


def test_the_second_node_is_refused_and_learns_what_to_do(path: Path) -> None:
    said = pytest.raises(UserError, match=r"another node of swarm 'reef'.*SHOAL_HOME=")
    with only_node(path, "reef"), said, only_node(path, "reef"):
        raise AssertionError


def test_another_swarm_and_another_identity_are_free(path: Path, tmp_path: Path) -> None:
    with only_node(path, "reef"), only_node(path, "lagoon"), only_node(tmp_path / "other", "reef"):
        pass
    with only_node(path, "reef"):
        pass


@pytest.mark.parametrize("end", ["kill", "close"])
def test_the_lock_ends_with_its_process_however_that_ends(path: Path, end: str) -> None:
    words = [sys.executable, "-c", HOLD, str(path), "reef"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="another node"), only_node(path, "reef"):
            raise AssertionError
        process.kill() if end == "kill" else process.stdin.close()
        process.wait()
    with only_node(path, "reef"):
        pass


def test_where_no_lock_can_be_made_nothing_is_refused(tmp_path: Path) -> None:
    with only_node(tmp_path / "no folder" / "identity", "reef"), only_node(tmp_path / "no folder" / "identity", "reef"):
        pass
