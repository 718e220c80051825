"""The manifests in `deploy/`: their shape, that they give nothing away, and that shoal knows every command in them.

`tests/repository/integration/test_docker.py` has the same for `docker/`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import SpaceCard

from shoal.cli.main import _parser
from shoal_host.host.settings import PORT

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
Manifest = dict[str, Any]
COMPOSE: Manifest = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: Manifest = COMPOSE["services"]
KUBERNETES: dict[str, Manifest] = {
    f"{one['kind']}/{one['metadata']['name']}": one
    for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
}
SKY: Manifest = yaml.safe_load((DEPLOY / "skypilot.yaml").read_text())
SPACE = DEPLOY / "space"


def pod(name: str) -> Manifest:
    found: Manifest = KUBERNETES[name]["spec"]["template"]["spec"]
    return found


def in_shell(text: str) -> list[list[str]]:
    """The words after `shoal` of each of its commands in a shell's program, each variable with some value."""
    text = re.sub(r"\\\n\s*", " ", re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE))
    text = re.sub(r"\$\{?\w+(:[-+][^}]*)?\}?", "7", text)
    return [shlex.split(found, comments=True) for found in re.findall(r"^.*?\bshoal ((?:--|[a-z]+\b).*)$", text, re.M)]


def in_guide() -> list[list[str]]:
    lines = re.findall(r"^    (shoal .*)$", (ROOT / "docs" / "guides" / "deploy.md").read_text(), re.MULTILINE)
    return in_shell("\n".join(lines))


COMMAND_LINES = [
    *(
        [re.sub(r"\$\{\w+:-(\w+)\}", r"\1", word) for word in service["command"]]
        for service in SERVICES.values()
        if "entrypoint" not in service
    ),
    pod("Deployment/relay")["containers"][0]["args"],
    *in_shell(pod("StatefulSet/node")["containers"][0]["args"][0]),
    *in_shell(SKY["run"]),
    *in_shell(re.sub(r"^RUN ", "", (SPACE / "Dockerfile").read_text(), flags=re.MULTILINE)),
    *in_shell((SPACE / "start.sh").read_text()),
    *in_guide(),
]


@pytest.mark.parametrize("words", COMMAND_LINES, ids=lambda words: " ".join(words)[:40])
def test_the_program_knows_every_command(words: list[str]) -> None:
    """Raises `UserError` for an unknown command or flag."""
    assert _parser(words).parse(words).command


def test_there_are_commands_of_each_manifest() -> None:
    assert len(COMMAND_LINES) >= 1 + 1 + 2 + 2 + 1 + 2
    assert {words[0] for words in COMMAND_LINES} >= {"host", "relay", "watch", "join", "run"}


@pytest.mark.parametrize("name", SERVICES)
def test_services_may_do_little_and_start_again(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert int(service["user"].split(":")[0]) > 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert not {"privileged", "cap_add", "network_mode", "pid", "environment"} & set(service)
    compile(service["healthcheck"]["test"][-1], name, "exec")


def test_the_host_keeps_its_keys_and_shows_its_ports() -> None:
    ports = [f"{PORT}:{PORT}", f"{PORT + 1}:{PORT + 1}"]
    window = f"127.0.0.1:{PORT + 2}:{PORT + 2}"  # what it sends is not encrypted
    assert SERVICES["host"]["ports"] == [*ports, window]
    [volume] = SERVICES["host"]["volumes"]
    name, target = volume.split(":")
    assert name in COMPOSE["volumes"]
    assert SERVICES["host"]["command"][1].startswith(f"{target}/")


@pytest.mark.parametrize("name", ["Deployment/relay", "StatefulSet/node"])
def test_pods_fit_together_and_may_do_little(name: str) -> None:
    spec, found = KUBERNETES[name]["spec"], pod(name)
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    [service] = [one for one in KUBERNETES.values() if one["kind"] == "Service" and one["spec"]["selector"] == labels]
    [container] = found["containers"]
    ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
    for port in service["spec"].get("ports", []):
        assert ports[port["targetPort"]] == port["port"]
    volumes = {volume["name"] for volume in found["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    for probe in ("startupProbe", "livenessProbe"):
        [way] = {"tcpSocket", "exec"} & set(container[probe])
        assert way == "exec" or container[probe][way]["port"] in ports
    assert found["securityContext"]["runAsNonRoot"] is True
    assert found["securityContext"]["runAsUser"] > 0
    assert found["automountServiceAccountToken"] is False
    allowed = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == allowed
    assert "memory" in container["resources"]["limits"]


def test_every_pod_has_a_key_of_its_own() -> None:
    node = KUBERNETES["StatefulSet/node"]["spec"]
    [container] = pod("StatefulSet/node")["containers"]
    home = {one["name"]: one["value"] for one in container["env"]}["SHOAL_HOME"]
    [claim] = node["volumeClaimTemplates"]
    assert {"name": claim["metadata"]["name"], "mountPath": home} in container["volumeMounts"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert node["serviceName"] == "node"
    assert "Service/node" in KUBERNETES
    assert {one["metadata"].get("namespace", "shoal") for one in KUBERNETES.values()} == {"shoal"}
    assert "tcp/relay:7447" in container["args"][0]  # the service's name and port
    assert KUBERNETES["Service/relay"]["spec"]["ports"][0]["port"] == 7447


def run_with_a_stand_in(program: str, folder: Path, **variables: str) -> list[str]:
    """The words with which a shell's program calls `shoal`; nginx and shoal do nothing."""
    tools = folder / "bin"
    if not tools.exists():  # written once: a program that an earlier call started may still hold its file
        tools.mkdir()
        (tools / "shoal").write_text(f'#!/bin/sh\necho "$@" > {folder}/said\n')
        (tools / "nginx").write_text("#!/bin/sh\n")
        for tool in tools.iterdir():
            tool.chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(folder), **variables}
    subprocess.run(["sh", "-c", program], cwd=folder, env=environment, check=True, timeout=60)
    return (folder / "said").read_text().split()


def test_a_pod_that_starts_again_goes_on_with_its_run(tmp_path: Path) -> None:
    program = pod("StatefulSet/node")["containers"][0]["args"][0].replace("/data/", f"{tmp_path}/")
    assert run_with_a_stand_in(program, tmp_path)[:2] == ["join", "tcp/relay:7447"]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").touch()
    assert run_with_a_stand_in(program, tmp_path) == ["join", "--resume", f"{tmp_path}/run"]


def test_a_machine_of_a_cloud_that_starts_again_goes_on_with_its_run(tmp_path: Path) -> None:
    program = SKY["run"].replace("~/shoal/bin/shoal", "shoal")
    assert all(isinstance(value, str) for value in SKY["envs"].values())
    said = run_with_a_stand_in(program, tmp_path, **SKY["envs"])
    assert said[:4] == ["join", SKY["envs"]["RELAY"], "--swarm", SKY["envs"]["SWARM"]]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").touch()
    assert run_with_a_stand_in(program, tmp_path, **SKY["envs"]) == ["join", "--resume", f"{tmp_path}/run"]


def test_the_cloud_installs_what_was_tested() -> None:
    assert {"name", "resources", "workdir", "envs", "setup", "run"} == set(SKY)
    assert "-c constraints.txt" in SKY["setup"]
    [extras] = re.findall(r"\.\[([\w,-]+)\]", SKY["setup"])
    project = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", project, re.MULTILINE) for extra in extras.split(","))


def test_the_space_is_one_that_the_hub_knows() -> None:
    card = SpaceCard.load(SPACE / "README.md")
    assert card.data.sdk == "docker"
    assert f"listen {card.data.app_port};" in (SPACE / "nginx.conf").read_text()
    assert f"EXPOSE {card.data.app_port}" in (SPACE / "Dockerfile").read_text()
    assert len(card.data.short_description) <= 60
    copied = re.findall(r"^COPY (.+) \./$", (SPACE / "Dockerfile").read_text(), re.MULTILINE)
    assert {*copied[0].split(), "README.md", "Dockerfile"} == {path.name for path in SPACE.iterdir()}


def test_the_space_runs_what_was_tested_and_not_as_root() -> None:
    text = (SPACE / "Dockerfile").read_text()
    [torch] = re.findall(r"torch==[\d.]+", text)
    assert torch in (ROOT / "constraints.txt").read_text().splitlines()
    assert "--extra-index-url" not in text  # of two indexes either may answer for any name
    assert re.findall(r"^USER (\d+)$", text, re.MULTILINE) == ["1000"]


def test_the_space_shows_a_swarm_if_it_is_told_of_one(tmp_path: Path) -> None:
    program = (SPACE / "start.sh").read_text()
    assert run_with_a_stand_in(program, tmp_path) == ["watch", "--serve", "runs/demo"]
    said = run_with_a_stand_in(program, tmp_path, SHOAL_RELAY="relay.example.org:7447", SHOAL_SWARM="lagoon")
    assert said == ["watch", "--serve", "runs/demo", "--swarm", "lagoon", "relay.example.org:7447"]


def test_the_space_frees_the_page_from_nothing_but_its_ban_on_frames() -> None:
    from shoal_web.serving.guard import POLICY

    [policy] = re.findall(r'add_header Content-Security-Policy "([^"]+)"', (SPACE / "nginx.conf").read_text())
    assert policy == POLICY.replace("frame-ancestors 'none'", "frame-ancestors https://huggingface.co")
