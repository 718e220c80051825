"""What is kept of a GGUF file: the same model, read from a folder, made again if it is damaged, a few at most."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from tiny import CPU

from shoal.policy import converted, loading
from shoal.policy.loading import load
from shoal_extras.gguf.export import KINDS, write_gguf


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(converted, "LEAST", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "shoal" / "converted"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_gguf(load("guppy", CPU.device), tmp_path / "m.gguf", KINDS["F16"])
    return tmp_path / "m.gguf"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The GGUF files that were read."""
    read: list[str] = []
    facts_of = loading.facts_of
    monkeypatch.setattr(loading, "facts_of", lambda path, config: read.append(path.name) or facts_of(path, config))
    return read


def kept(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if path.is_dir()]


def test_the_second_time_is_the_same_model(file: Path, cache: Path, read: list[str]) -> None:
    first, second = load(str(file), CPU.device), load(str(file), CPU.device)
    assert read == ["m.gguf"]
    assert len(kept(cache)) == 1
    mine, other = first.model.state_dict(), second.model.state_dict()
    assert mine.keys() == other.keys()
    assert all(torch.equal(mine[name], other[name]) for name in mine)
    for each in ("name", "stop_ids", "eos_id", "pad_id", "asking", "answers_in_lines", "chat_template"):
        assert getattr(first, each) == getattr(second, each)
    tokens = [lm.tokenizer.backend_tokenizer.to_str() for lm in (first, second)]
    assert tokens[0] == tokens[1]
    settings = [lm.model.config.to_dict() | {"_name_or_path": ""} for lm in (first, second)]
    assert settings[0] == settings[1]
    assert first.model.generation_config.to_dict() == second.model.generation_config.to_dict()


@pytest.mark.parametrize("part", ["model.safetensors", "tokenizer.json", "config.json", "files.json"])
@pytest.mark.parametrize("spoil", ["cut", "flipped", "gone"])
def test_a_damaged_copy_is_made_again(part: str, spoil: str, file: Path, cache: Path, read: list[str]) -> None:
    load(str(file), CPU.device)
    [folder] = kept(cache)
    right = (folder / part).read_bytes()
    if spoil == "gone":
        (folder / part).unlink()
    elif spoil == "cut":
        os.truncate(folder / part, len(right) // 2)
    else:
        (folder / part).write_bytes(right[:99] + bytes([right[99] ^ 1]) + right[100:])
    load(str(file), CPU.device)
    assert read == ["m.gguf"] * 2
    assert (folder / part).read_bytes() == right
    assert kept(cache) == [folder]


def test_another_file_of_this_name_is_another_model(file: Path, cache: Path, read: list[str]) -> None:
    load(str(file), CPU.device)
    write_gguf(load("guppy", CPU.device), file, KINDS["Q8_0"])
    load(str(file), CPU.device)
    assert len(read) == len(kept(cache)) == 2


def test_those_used_last_are_kept(
    file: Path, cache: Path, tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converted, "MOST", 2)
    files = [file, tmp_path / "b.gguf", tmp_path / "c.gguf"]
    for path, kind in zip(files[1:], ("F32", "Q8_0"), strict=True):
        write_gguf(load("guppy", CPU.device), path, KINDS[kind])
    used = []
    for path in files[:2]:
        load(str(path), CPU.device)
        used += [each for each in kept(cache) if each not in used]
    os.utime(used[1], (1, 1))
    load(str(file), CPU.device)
    load(str(files[2]), CPU.device)
    assert used[0] in kept(cache)
    assert used[1] not in kept(cache)
    assert len(kept(cache)) == 2


@pytest.mark.parametrize("limit", ["MOST_BYTES", "LEAST"])
def test_what_is_too_large_or_too_small_is_not_kept(
    limit: str, file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converted, limit, 2**20 if limit == "MOST_BYTES" else 2**30)
    assert load(str(file), CPU.device).stop_ids
    assert not (cache.is_dir() and kept(cache))


def test_without_a_cache_it_loads_all_the_same(file: Path, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert load(str(file), CPU.device).stop_ids
