"""`shoal doctor`: its report, as JSON and for people."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import pytest

from shoal.cli.main import main
from shoal.config.load import make_config
from shoal_extras.doctor.command import _advice


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import argparse, sys\nfrom shoal_extras.doctor.command import add_arguments\n"
        "add_arguments(argparse.ArgumentParser())\n"
        "print(sorted({'torch', 'transformers', 'reasoning_gym'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_report_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    from shoal.cli.flags import Parser
    from shoal_extras.doctor import command as doctor

    parser = Parser()
    doctor.add_arguments(parser)
    given = ["--nodes", "2", "--threads", "1", "--workers", "0", "--rounds", "10"]
    args: argparse.Namespace = parser.parse([*given, "--json"])
    assert doctor.command(args) == 0
    report = json.loads(capsys.readouterr().out)
    assert report.keys() == {"machine", "models", "run"}
    run = report["run"]
    assert run.keys() == {"expected_peak_bytes", "free_bytes", "fits", "advice"}
    assert 3e8 < run["expected_peak_bytes"] < 3e9
    [model] = report["models"]
    assert (model["model"], model["nodes"]) == ("guppy", 2)
    assert model["trial"]["decode_tokens_per_second"] > 0
    assert model["trial"]["update_tokens_per_second"] > 0
    assert main(["doctor", *given]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "It fits" in said
    assert f"shoal run {' '.join(given)}" in said


def test_advice_names_what_is_not_done_yet() -> None:
    config = make_config({"round": {"nodes": 4}, "learner": {"optim": "adamw"}}, "a test")
    all_of_it = ["--workers 0", "--optim adafactor", "--lora-r 16", "--nodes 2", "a smaller model"]
    assert _advice(config, 2) == all_of_it
    config = make_config({"round": {"nodes": 1}, "learner": {"optim": "adafactor"}, "policy": {"lora_r": 8}}, "a test")
    assert _advice(config, 0) == ["a smaller model"]
