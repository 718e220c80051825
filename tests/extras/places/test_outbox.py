"""What waits for a place survives a kill at any byte."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shoal_extras.places.files import MAGIC, frame, unpack
from shoal_extras.places.outbox import Outbox

KEY = "ab" * 32
LIFE = """
import random, sys, time
from pathlib import Path
from shoal_extras.places.outbox import Outbox
from shoal_extras.places.store import FolderStore
box, store = Outbox(Path(sys.argv[1]), "ab" * 32), FolderStore(sys.argv[2])
number = int(sys.argv[3])
print("begun", flush=True)
while True:
    data = b"%d " % number + bytes(random.randrange(20_000))
    box.add("rollouts", data)
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
    number += 1
    if random.random() < 0.3:
        box.seal(time.time())
    if random.random() < 0.3:
        for name, content in box.sealed(time.time()):
            store.write("shoal/" + name.path, content)
            box.sent(name)
"""
"""A node that says what it has published, while the place may be there or not."""


@pytest.mark.slow
def test_kills_lose_nothing(tmp_path: Path) -> None:
    """Sixty lives, each killed at any instant: all that was said to be published arrives, as it was, by the last."""
    (tmp_path / "place").mkdir()
    said, chance = 0, random.Random(1)
    for _ in range(60):
        words = [sys.executable, "-c", LIFE, str(tmp_path / "box"), str(tmp_path / "place"), str(said)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            time.sleep(chance.random() * 0.05)
            os.kill(process.pid, signal.SIGKILL)
            lines = process.stdout.read().split("\n")[:-1]
        said = int(lines[-1]) + 1 if lines else said
    box = Outbox(tmp_path / "box", KEY)
    box.seal(time.time())
    files = [*(data for _, data in box.sealed(time.time()))]
    files += [path.read_bytes() for path in (tmp_path / "place").rglob("2*-*")]
    came = {int(message.split(b" ")[0]): message for data in files for _, message in unpack(data)}
    assert said > 60
    assert came.keys() >= set(range(said))
    assert all(set(message.split(b" ")[1]) <= {0} for message in came.values())


def test_an_end_that_was_not_written_is_cut_off_at_every_byte(tmp_path: Path) -> None:
    whole = MAGIC + frame("rollouts", b"one") + frame("notices", b"two")
    for end in range(len(whole) + 1):
        folder = tmp_path / str(end)
        folder.mkdir()
        (folder / "open").write_bytes(whole[:end])
        box = Outbox(folder, KEY)
        box.add("rollouts", b"three")
        box.seal(time.time())
        [(_, data)] = box.sealed(time.time())
        count = (end >= len(MAGIC) + 8) + (end >= len(whole))
        assert [message for _, message in unpack(data)] == [*[b"one", b"two"][:count], b"three"]


def test_a_full_disk_takes_a_message_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Outbox(tmp_path, KEY)
    box.add("rollouts", b"one")
    before = (tmp_path / "open").read_bytes()
    try:
        import resource
    except ImportError:
        pytest.skip("no limits of files here")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 4, limits[1]))
        with pytest.raises(OSError, match=r"only 4 of|too large"):
            box.add("rollouts", b"two, which does not fit")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (tmp_path / "open").read_bytes() == before


def test_what_waits_for_long_gets_a_name_of_now_and_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_extras.places.outbox.FULL", 100)
    monkeypatch.setattr("shoal_extras.places.outbox.WAITING", 300)
    box, now = Outbox(tmp_path, KEY), time.time()
    for number in range(5):
        box.add("rollouts", b"%d" % number)
        box.seal(now - 9000 + number)
    assert box.lost == 2
    found = list(box.sealed(now))
    assert [unpack(data)[0][1] for _, data in found] == [b"2", b"3", b"4"]
    assert all(abs(name.time - now) < 1 for name, _ in found)
    for name, _ in found:
        box.sent(name)
    assert box.waiting() == []
    assert list(box.surplus(0.0, 0)) == [name for name, _ in found]
