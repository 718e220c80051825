"""The program, from its command line to its exit code: what it says, and that a mistake leaves nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from fakes import RIGHT, WRONG, Exact, Parrot, Student

import shoal
from shoal import __version__
from shoal.cli.ask import form_of
from shoal.cli.main import main
from shoal.config.load import make_config
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.rollout import Question
from shoal.runs import folder as folder_module
from shoal.runs.folder import RunFolder, read_metrics

Capture = pytest.CaptureFixture[str]


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """All that is in a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Runs without models: set `.policy` to what makes one. The tasks are real, and "right" is right."""
    import shoal.runs.build
    import shoal.runs.models

    parts = SimpleNamespace(policy=lambda: Parrot(RIGHT, WRONG))

    def policies(nodes: Any, names: list[str], checkpoint: Path | None, status: Any) -> list[Parrot]:
        return [parts.policy() for _ in names]

    monkeypatch.setattr(shoal.runs.build.Nodes, "_policies", policies)
    monkeypatch.setattr(shoal.runs.build.Nodes, "make_learner", lambda *_: Student())
    monkeypatch.setattr(shoal.runs.build, "Verifier", lambda _: Exact())
    return parts


def complaint(argv: list[str], capsys: Capture) -> str:
    """The one line that a command which cannot be done says."""
    assert main(argv) == 2
    _, err = capsys.readouterr()
    assert err.count("\n") == 1, err
    assert err.startswith("shoal: ")
    return err.removeprefix("shoal: ").rstrip("\n")


# What is said without doing anything


def help_of(capsys: Capture, *command: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main([*command, "--help"])
    assert caught.value.code == 0
    return capsys.readouterr().out


def test_help_of_the_other_commands(capsys: Capture) -> None:
    words = set(help_of(capsys, "eval").replace(",", " ").split())
    assert {
        "MODEL",
        "--task",
        "--k",
        "--json",
        "--seed",
        "--suite",
        "--samples",
        "--questions",
    } <= words
    assert {"--temperature", "--top-p", "--device", "--dtype"} <= words
    assert not {"--nodes", "--learning-rate"} & words
    assert {"run", "eval", "--version"} <= set(help_of(capsys).split())


def test_version(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"shoal {__version__}\n"


LIGHT = """
import sys
import {modules}
from shoal.cli.main import main
try:
    main({argv})
except SystemExit:
    pass
heavy = {{"torch", "transformers", "pandas", "reasoning_gym", "matplotlib"}}
print(*sorted(heavy & sys.modules.keys()), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("modules", "argv"),
    [
        ("shoal", ["--help"]),
        ("shoal", ["run", "--help"]),
        ("shoal", ["eval", "--help"]),
        (
            "shoal.node, shoal_host.judge, shoal.selection.selection, shoal.runs.metrics, shoal.runs.folder, "
            "shoal.transports.memory",
            ["--version"],
        ),
    ],
)
def test_what_needs_no_model_imports_nothing_heavy(modules: str, argv: list[str]) -> None:
    program = LIGHT.format(modules=modules, argv=argv)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""
    assert done.stdout


# Settings, from where they are given to where they are used


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What `shoal run` was to start with: (config, out, resume, quiet) each time."""
    calls: list[tuple[Any, ...]] = []

    def session(
        config: Config, out: Path | None, resume: Path | None, quiet: bool, joins: bool = False, ask: str = ""
    ) -> int:
        calls.append((config, out, resume, quiet))
        return 0

    monkeypatch.setattr("shoal.cli.session.run_session", session)
    return calls


def test_the_daily_flags(started: list[tuple[Any, ...]]) -> None:
    argv = "run --out runs/a --rounds 7 --nodes 3 --seed 5 --model a --model b --suite paper --local 2 --peers 6"
    assert main([*argv.split(), "--num-generations", "4", "--quiet"]) == 0
    [(config, out, resume, quiet)] = started
    assert (out, resume, quiet) == (Path("runs/a"), None, True)
    assert (config.rounds, config.seed, config.round.nodes) == (7, 5, 3)
    assert (config.round.local, config.round.peers, config.policy.num_generations) == (2, 6, 4)
    assert (config.policy.model, config.tasks.suite) == (["a", "b"], "paper")


def test_flags_go_over_the_file(started: list[tuple[Any, ...]], tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('rounds = 9\nseed = 3\n[round]\nnodes = 2\n[[tasks.sources]]\nname = "gcd"\n')
    assert main(["run", "--config", str(tmp_path / "a.toml"), "--seed", "4", "--local", "1"]) == 0
    [(config, out, _, quiet)] = started
    assert (config.rounds, config.seed, config.round.nodes, config.round.local) == (9, 4, 2, 1)
    assert [spec.name for spec in config.tasks.sources] == ["gcd"]
    assert (out, quiet) == (None, False)


@pytest.mark.parametrize("resolved", [False, True])
def test_a_config_from_a_run_is_that_run_s(started: list[tuple[Any, ...]], tmp_path: Path, resolved: bool) -> None:
    config = Config(seed=9, rounds=3)
    config.round.peers = 1
    if resolved:
        config = config.resolved()
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert main(["run", "--config", str(tmp_path / "config.toml")]) == 0
    assert started[0][0] == config


# Mistakes


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--suite", "pnd"], "no suite 'pnd'; did you mean 'pond'?"),
        (["--rounds", "none"], "the command line: --rounds none: input"),
        (["--loss-type", "sapo"], "there is no loss 'sapo'; did you mean 'gspo'?"),
        (["--device", "abacus"], "device 'abacus' is not available"),
        (["--model", "./nope"], "'./nope' is no model"),
        (["--model", "nope.gguf"], "there is no file 'nope.gguf'"),
        (["--model", "nobody/nothing-of-the-kind"], "there is no model 'nobody/nothing-of-the-kind'"),
        (["--config", "nope.toml"], "cannot read nope.toml: No such file or directory"),
        (["--resume", "nope"], "nope is not the folder of a run"),
        (
            ["--resume", "nope", "--seed", "3"],
            "a resumed run keeps its settings: seed cannot change",
        ),
        (["--resume", "nope", "--out", "there"], "--resume takes all settings from its folder"),
    ],
)
def test_mistakes_on_the_command_line(argv: list[str], said: str, here: Path, capsys: Capture) -> None:
    out = [] if "--resume" in argv else ["--out", "deep/down/out"]
    assert complaint(["run", *argv, *out, "--quiet", "--threads", "1"], capsys).startswith(said)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('[[tasks.sources]]\nname = "chain_sm"\n', "no task 'chain_sm' in reasoning-gym"),
        (
            '[[tasks.sources]]\nname = "gcd"\nparameters = { max_vale = 3 }\n',
            "task 'gcd' has no parameter 'max_vale'; did",
        ),
        (
            '[[tasks.sources]]\nname = "no_such_module:Task"\n',
            "one.toml names code that would run here ('no_such_module:Task'): add --allow-code if you trust the file",
        ),
        (
            '[[rewards]]\nkind = "function"\nfunction = "mine:score"\n',
            "one.toml names code that would run here ('mine:score'): add --allow-code",
        ),
        ("[round]\nnods = 3\n", "one.toml: there is no setting 'round.nods'; did you mean 'round.nodes'?"),
        ("rounds = 0\n", "one.toml: rounds = 0: input should be greater than or equal to 1"),
        ("version = 3\n", "one.toml has version 3 of the format, and this shoal reads version 2"),
        ("rounds = \n", "one.toml is not TOML"),
    ],
)
def test_mistakes_in_a_file(content: str, said: str, here: Path, capsys: Capture) -> None:
    (here / "one.toml").write_text(content)
    assert complaint(["run", "--config", "one.toml", "--out", "out", "--threads", "1"], capsys).startswith(said)
    assert [path.name for path in here.iterdir()] == ["one.toml"]


def test_a_folder_that_holds_no_model(here: Path, capsys: Capture) -> None:
    (here / "empty").mkdir()
    assert complaint(["run", "--model", "empty", "--quiet"], capsys).startswith("folder 'empty' holds no model")
    assert [path.name for path in here.iterdir()] == ["empty"]  # and no runs/DATE-TIME


def test_an_out_folder_that_is_there_already(here: Path, capsys: Capture) -> None:
    (here / "full").mkdir()
    (here / "full" / "thesis.txt").write_text("the only copy")
    (here / "run").mkdir()
    (here / "run" / "config.toml").write_text("seed = 1\n")
    (here / "file").write_text("")
    before = snapshot(here)
    for out, said in {
        "full": "full is not empty: choose another --out",
        "run": "run holds a run: go on with it by --resume run, or choose another --out",
        "file": "file is a file: choose another --out",
        "file/below": "cannot write file/below: ",
        "new/" + "x" * 300: "cannot write new/xxx",
    }.items():
        assert complaint(["run", "--out", out], capsys).startswith(said)
    assert snapshot(here) == before


def test_an_empty_out_folder_stays_and_stays_empty(here: Path, capsys: Capture) -> None:
    (here / "out").mkdir()
    complaint(["run", "--suite", "pnd", "--out", "out"], capsys)
    assert list((here / "out").iterdir()) == []


def test_an_out_folder_that_must_not_be_written(here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        assert complaint(["run", "--out", "out"], capsys) == "cannot write out: Permission denied"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        assert complaint(["run", "--out", "a/b"], capsys) == "cannot write a/b/config.toml: Permission denied"
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("version = 1\n", "config.toml has version 1 of the format"),
        ("sed = 2\n", "out was trained with settings that this version does not have (sed = 2)"),
        ("", "task 'gcd' has no parameter 'most'"),
    ],
)
def test_a_run_that_cannot_be_resumed_stays_as_it_was(content: str, said: str, here: Path, capsys: Capture) -> None:
    own = '[[tasks.sources]]\nname = "gcd"\nparameters = { most = 3 }\n'
    with RunFolder.create(here / "out", "") as folder:
        folder.log([{"round": 0, "node": "node-1", "eval/pass@1": 0.5}])
        folder.checkpoint(0, lambda path: void((path / "weights").write_bytes(b"x")))
    config = make_config(tomllib.loads(own), "own").to_toml()
    (here / "out" / "config.toml").write_text(content or config)
    before = snapshot(here)
    assert said in complaint(["run", "--resume", "out", "--threads", "0"], capsys)
    assert snapshot(here) == before


def test_a_message_of_several_lines_becomes_one(here: Path, capsys: Capture) -> None:
    (here / "chatty.py").write_text('raise ImportError("first\\nsecond")')
    (here / "one.toml").write_text('[[tasks.sources]]\nname = "chatty:Task"\n')
    argv = ["run", "--config", "one.toml", "--allow-code", "--out", "out", "--threads", "1"]
    assert "first second" in complaint(argv, capsys)
    assert not (here / "out").exists()


OWN = """
import sys
from shoal.config.tasks import TaskSpec
from shoal.tasks import create_task
print(create_task(TaskSpec(name="mine:Mine")).name)
"""
MINE = """
class Mine:
    name, version, config = "mine", "1", "0"
    def question(self, seed, index): ...
    def score(self, question, answers): ...
"""


def test_a_task_of_one_s_own_is_found_where_one_stands(here: Path) -> None:
    """An installed program, other than `python -m`, does not look into the current folder by itself: -P is like it."""
    (here / "mine.py").write_text(MINE)
    path = {"PYTHONPATH": str(Path(shoal.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-P", "-c", OWN], env=os.environ | path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("mine\n", "")


# Runs, with policies that need no model

SMALL_SETTINGS = {
    "rounds": 3,
    "nodes": 2,
    "local": 1,
    "peers": 1,
    "num-generations": 2,
    "eval-samples": 1,
    "eval-questions": 1,
}
SMALL = ["run", "--out=out", "--threads=1", "--quiet", *(f"--{name}={value}" for name, value in SMALL_SETTINGS.items())]


def test_a_run_says_where_it_is(fakes: SimpleNamespace, here: Path, capsys: Capture) -> None:
    assert main(SMALL) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == [
        *("right", "before", "after", "blind"),
        *("peers", "local", "3", "folder"),
    ]
    assert lines[-1].split() == ["folder", "out"]
    assert [row["round"] for row in read_metrics(here / "out")] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_an_interrupt_before_anything_was_kept_leaves_nothing(
    fakes: SimpleNamespace, here: Path, capsys: Capture
) -> None:
    def interrupted() -> Parrot:
        raise KeyboardInterrupt

    fakes.policy = interrupted
    assert main(SMALL) == 130
    assert capsys.readouterr().err == "shoal: interrupted\n"
    assert list(here.iterdir()) == []


def test_a_disk_too_small_is_said_before_the_run(
    fakes: SimpleNamespace, here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a second checkpoint beside the first."""
    monkeypatch.setattr(shoal.runs.build, "checkpoint_bytes", lambda policies, config: 2_400_000_000)
    needed = 2 * 2_400_000_000
    space = SimpleNamespace(free=needed - 1)
    monkeypatch.setattr(folder_module.shutil, "disk_usage", lambda _: space)
    said = complaint(SMALL, capsys)
    assert said.startswith("the disk of out has 4.80 GB free, and a run may need 4.80")
    assert said.endswith("free some space, or choose another --out")
    assert list(here.iterdir()) == []
    space.free = needed
    assert main(SMALL) == 0


def grown(size: int) -> Callable[[], Parrot]:
    """Policies whose every save takes `size` bytes more than the one before."""

    def make() -> Parrot:
        sizes = iter(range(0, 10**9, size))
        return Parrot(save=lambda folder: void((folder / "weights").write_bytes(b"x" * next(sizes))))

    return make


def void(_: object) -> None:
    pass


def test_a_disk_that_fills_up_on_the_way(
    fakes: SimpleNamespace, here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(folder: Path) -> None:
        if "round-000002" in str(folder):
            (folder / "weights").write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fakes.policy = lambda: Parrot(save=save)
    said = complaint([*SMALL, "--checkpoint-every", "1"], capsys)
    assert said.startswith(
        f"cannot write {Path('out/checkpoints/round-000002')}: the disk is full; free some space, then"
    )
    assert said.endswith("--resume goes on after round 1")
    fakes.policy = Parrot
    assert main(["run", "--resume", "out", "--quiet"]) == 0
    assert [row["round"] for row in read_metrics(here / "out")] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_disk_that_is_full_at_once_leaves_nothing(fakes: SimpleNamespace, here: Path, capsys: Capture) -> None:
    def save(folder: Path) -> None:
        (folder / "weights").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    fakes.policy = lambda: Parrot(save=save)
    said = complaint([*SMALL, "--out", "deep/out"], capsys)
    assert said.endswith("the disk is full; free some space, then start again, as nothing was kept")
    assert list(here.iterdir()) == []


def test_a_real_disk_that_fills_up_on_the_way(fakes: SimpleNamespace, here: Path, capsys: Capture) -> None:
    disk = here / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small disk")
    try:
        fakes.policy = grown(500_000)
        said = complaint([*SMALL, "--out", "disk/run", "--rounds", "9", "--checkpoint-every", "1"], capsys)
        assert "the disk is full; free some space, then --resume goes on after round" in said
        with RunFolder.open(disk / "run") as folder:
            latest = folder.latest()
        assert latest is not None
        assert 1 <= latest[0] < 9
        sizes = {(latest[1] / node / "weights").stat().st_size for node in ("node-1", "node-2")}
        assert sizes == {500_000 * latest[0]}
        assert f"round {latest[0]}" in said
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


# Evaluation


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Config, str]]:
    """`shoal eval` of a parrot that is right every other time; what was to be evaluated."""
    monkeypatch.setattr("shoal_extras.evaluation.check_exists", lambda name: None)
    import shoal.runs.build
    import shoal.runs.models
    import shoal.tasks

    built: list[tuple[Config, str]] = []
    monkeypatch.setattr(shoal.runs.models, "build_policy", lambda *call: built.append(call) or Parrot(RIGHT, WRONG))
    monkeypatch.setattr(shoal.sandbox.verifier, "Verifier", lambda _: Exact())
    return built


def test_eval_as_json(judged: list[tuple[Config, str]], capsys: Capture) -> None:
    argv = "eval some/model --task gcd --task lcm --questions 3 --samples 4 --k 2 --seed 5 --json"
    assert main(argv.split()) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["model"] == "some/model"
    assert result["suite"] is None
    assert (result["seed"], result["samples"]) == (5, 4)
    assert result["all"]["questions"] == 6
    assert result["all"]["pass@1"]["value"] == pytest.approx(0.5)
    assert result["tasks"].keys() == {"gcd", "lcm"}
    assert result["tasks"]["gcd"]["pass@2"]["value"] == pytest.approx(5 / 6)
    assert result["tasks"]["gcd"]["pass@1"]["low"] < 0.5 < result["tasks"]["gcd"]["pass@1"]["high"]
    [(config, model, _)] = judged
    assert model == "some/model"
    assert config.policy.model == ["some/model"]


def test_eval_as_a_table(judged: list[tuple[Config, str]], capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["eval", "guppy", "--questions", "2", "--samples", "2"]) == 0
    out = capsys.readouterr().out
    assert "pass@1" in out
    assert "pass@2" in out
    rows = {line.split()[0]: line.split()[1:3] for line in out.splitlines() if line.strip()}
    assert rows["chain_sum"] == ["2", "0.500"]
    assert rows["all"] == ["16", "0.500"]


def test_eval_shows_answers(judged: list[tuple[Config, str]], capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question of each task by turns, the answer, whether it is right, and what of it counted."""
    monkeypatch.setenv("COLUMNS", "120")
    assert main("eval guppy --task gcd --task lcm --questions 2 --samples 1 --show 3".split()) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines.count(["answer", "right", RIGHT]) == 3
    assert lines.count(["counted", RIGHT]) == 3
    assert main("eval guppy --suite tagged --questions 1 --samples 1 --show 1".split()) == 0
    assert "counted  nothing: it does not have the form asked for" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--show", "1", "--json"], "--show prints answers for people"),
        (["--show", "-1"], "--show is 0 or more"),
        (["--k", "9"], "pass@9 needs --samples 9 or more"),
        (["--k", "0"], "pass@0 needs --samples"),
        (["--task", "gdc"], "no task 'gdc' in reasoning-gym"),
        (["--suite", "papr"], "no suite 'papr'; did you mean 'paper'?"),
        (["--samples", "0"], "the command line: --evaluation.samples 0: input"),
    ],
)
def test_mistakes_in_an_evaluation(argv: list[str], said: str, judged: Any, capsys: Capture) -> None:
    assert complaint(["eval", "guppy", *argv], capsys).startswith(said)
    assert judged == []


def test_eval_of_no_model(capsys: Capture) -> None:
    assert complaint(["eval", "./nope", "--questions", "1", "--threads", "1"], capsys).startswith(
        "'./nope' is no model"
    )


def test_ask_holds_no_conversations() -> None:
    with pytest.raises(UserError, match="'guess' answers back"):
        form_of(Config.model_validate({"tasks": {"suite": "games"}}).resolved())


ASKS = """
import sys
from shoal.cli.main import main
sys.argv = ["shoal", "ask", "guppy", "2 + 3 =", "--device", "cpu"]
code = main()
slow = {"scipy.optimize", "accelerate", "torch._dynamo", "torch.distributed.tensor", "gguf", "pyarrow"}
print(code, *sorted(slow & sys.modules.keys()))
import torch
print(torch.distributed.is_available(), torch._dynamo.is_compiling(), torch.nn.Embedding(2, 2).weight.abs().sum() > 0)
"""


@pytest.mark.slow
def test_ask_imports_only_what_answers_need(tmp_path: Path) -> None:
    """What is remembered of the model is there at the second time. All is as usual for what comes later."""
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True, check=True, env=environment)
    answer, modules, usual = done.stdout.splitlines()
    assert answer.strip()
    assert modules == "0"
    assert usual.split() == ["True", "False", "tensor(True)"]


def test_ask_takes_the_form_of_the_first_task_of_the_file(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("one.toml").write_text(
        '[[tasks.sources]]\nname = "gcd"\nanswer = "tag"\nexamples = 2\n[[tasks.sources]]\nname = "lcm"\n'
    )
    forms: list[Question] = []

    def only_form(config: Config) -> NoReturn:
        forms.append(form_of(config))
        raise UserError("enough")

    monkeypatch.setattr("shoal.cli.ask.form_of", only_form)
    assert main("ask guppy 2 --config one.toml".split()) == 2
    assert capsys.readouterr().err == "loading guppy\nshoal: enough\n"
    assert forms[0].id.task == "gcd"
    assert len(forms[0].examples) == 4  # two questions with their answers


def test_threads_wait_briefly_for_each_other_unless_the_user_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMP_SPINCOUNT", "1")
    monkeypatch.delenv("GOMP_SPINCOUNT")  # and gone again at the end
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert main(["status", "nowhere"]) == 2
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert main(["status", "nowhere"]) == 2
    assert os.environ["GOMP_SPINCOUNT"] == "10000"


@pytest.mark.parametrize("command", ["run", "join", "eval", "ask", "demo", "rescore", "export", "validate", "probe"])
def test_no_flag_is_the_place_in_a_list(command: str, capsys: Capture) -> None:
    """`--report-to.0` is what a library says of the first of a list; people type `--report-to`."""
    with pytest.raises(SystemExit):
        main([command, "--help-all" if command in ("run", "join") else "--help"])
    assert not re.search(r"--[\w.-]*\.\d", capsys.readouterr().out)
