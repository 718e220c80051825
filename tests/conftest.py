"""Shared fixtures. Nothing here imports torch before a test that needs it, and no test reaches a network."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from shoal.policy.language import LanguagePolicy
    from shoal.policy.loading import LanguageModel

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
os.environ["HF_HUB_OFFLINE"] = "1"
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no error
settings.register_profile("search", patient)
settings.register_profile("shoal", patient, derandomize=True)  # the same cases each time
settings.load_profile("shoal")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # each worker of pytest takes one core: threads that wait for one spin

HERE = Path(__file__).parent
MODELS = HERE.parent / "models"
# What tests share is imported by name, also by the processes that tests start.
SHARED = [
    str(folder)
    for folder in (HERE / "support", HERE.parent / "examples", *sorted({f.parent for f in HERE.rglob("test_*.py")}))
]
sys.path[:0] = SHARED
os.environ["PYTHONPATH"] = os.pathsep.join([*SHARED, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real processes, sockets, browsers and attacks are slow: `pytest -m slow` runs them, `pytest` alone does not."""
    for item in items:
        parts = item.path.relative_to(HERE).parts
        if {"integration", "redteam"} & set(parts):
            item.add_marker("slow")
        if "redteam" in parts:
            item.add_marker("attack")


@pytest.fixture(autouse=True)
def no_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests make of a model on purpose is not kept for its next user."""
    if "shoal.policy.verdicts" in sys.modules:
        monkeypatch.setattr("shoal.policy.verdicts.cache_folder", lambda kind: Path("/dev/null") / kind)


@pytest.fixture(autouse=True)
def small_numbers() -> Iterator[None]:
    """A run treats numbers below 1e-38 as 0 in its whole process. The next test does not."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)


@pytest.fixture
def tiny_lm() -> Callable[..., LanguageModel]:
    """A maker of tiny models: `tiny_lm("llama", seed=0, chat=False, double=False)`, or another of `ARCHITECTURES`."""
    from tiny import make_lm

    return make_lm


@pytest.fixture
def tiny_policy() -> Callable[..., LanguagePolicy]:
    """A maker of policies with a tiny model; takes what `tiny_lm` takes, and how to sample."""
    from tiny import make_policy

    return make_policy


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE of 300 tokens with <pad> and <eos>."""
    from tiny import make_tokenizer

    return make_tokenizer()


@pytest.fixture
def smollm2() -> Path:
    return _fetched("SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(params=["SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"])
def gguf(request: pytest.FixtureRequest) -> Path:
    """Each of the GGUF files that `scripts/fetch_models.py` fetches."""
    return _fetched(request.param)


def _fetched(name: str) -> Path:
    path = MODELS / name
    if not path.is_file():
        pytest.skip(f"{path} is absent: python scripts/fetch_models.py")
    return path
