"""A swarm with a real server among its nodes: transformers' own, another process on loopback, with a tiny model."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shoal.cli.main import main
from shoal.policy.decoders.base import Sampling
from shoal.rollout import FinishReason, Message, Question, QuestionId
from shoal.runs.folder import read_metrics
from shoal_extras.endpoint import EndpointPolicy

if TYPE_CHECKING:
    from shoal.policy.loading import LanguageModel

NEEDED = ("fastapi", "uvicorn", "openai")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.network,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}: pip install 'transformers[serving]'"),
]


@pytest.fixture
def url(tiny_lm: Callable[..., LanguageModel], tmp_path: Path) -> Iterator[str]:
    """The address of `transformers serve` with a tiny untrained model that has a chat template."""
    model = tmp_path / "tiny"
    tiny_lm("llama", chat=True).save(model)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start = "from transformers.cli.transformers import main; main()"
    options = ["serve", str(model), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    log = tmp_path / "server.log"
    with (
        log.open("wb") as output,
        subprocess.Popen([sys.executable, "-c", start, *options], stdout=output, stderr=output) as server,
    ):
        try:
            deadline = time.monotonic() + 200
            while True:
                assert server.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}/v1#{model}"
        finally:
            server.kill()


def test_a_real_server(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = EndpointPolicy(url, Sampling(max_completion_length=6))
    questions = [Question(QuestionId("t", "1", "c", 0, n), (Message("user", f"2 + {n} ="),)) for n in range(2)]
    groups = policy.generate(questions, 3, seed=1)
    assert policy.trouble == ""
    assert [len(group) for group in groups] == [3, 3]
    assert len({completion.text for group in groups for completion in group}) > 1
    ends = {completion.finish_reason for group in groups for completion in group}
    assert FinishReason.length in ends  # untrained, it seldom ends by itself

    folder = tmp_path / "run"
    small = "--nodes 2 --local 2 --peers 1 --num-generations 3 --rounds 2 --threads 1"
    small += " --eval-questions 1 --eval-samples 1"
    models = ["--model", "guppy", "--model", url, "--max-completion-length", "6"]
    assert main(["run", *small.split(), *models, "--out", str(folder), "--quiet"]) == 0
    theirs = [row for row in read_metrics(folder) if row["node"] == "node-2"]
    assert [row["rollouts/shared"] for row in theirs if row["round"]] == [2, 2]
    assert [row["completions/missing"] for row in theirs if row["round"]] == [0, 0]
    assert all(row["eval/pass@1"] is not None for row in theirs if "eval/pass@1" in row)
    assert os.environ["HF_HUB_OFFLINE"] == "1"  # nothing was fetched
