"""A question of a person to the model of a run before and after: the view Ask, and the process that answers.

    asker = Asker()
    async for line in asker.ask(folder, "8 + 7 ="):       # `BusyError` while another question is being answered
        ...                # JSON: {"who": "after", "name": "node-2 after round 40", "text": "1"}, or {"error": ...}

The process computes with one thread, and only when nothing else wants the processor (`nice`), so that a run goes on.
It reads the newest checkpoint at each question, and ends after a while without one, with this process, and when nobody
waits for its answer any more.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec

from shoal.child import command, die_with_parent, own_link, start
from shoal.errors import UserError, in_brief
from shoal_web.watch.source import BusyError

if TYPE_CHECKING:
    from shoal.policy.language import LanguagePolicy

TOKENS: Final = 256  # of an answer, at most
LINE: Final = 1 << 20  # bytes of a line, at most
PATIENCE: Final = 180.0  # seconds for a question, the loading of models included
IDLE: Final = 300.0  # seconds without a question after which the process ends
COMMAND: Final = command("shoal_web.watch.asking")


class Asker:
    """Asks one question at a time, on one event loop."""

    def __init__(self) -> None:
        self._child: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._busy = False

    async def ask(self, folder: Path, text: str) -> AsyncGenerator[bytes]:
        """Nothing (the question is sent), then the lines of the answers. Close it, which ends what is under way.
        Raises `BusyError` at first."""
        if self._busy:
            raise BusyError("another question is being answered: ask again when it is")
        self._busy, ended = True, False
        until = anyio.current_time() + PATIENCE
        try:
            if self._child is None or self._child[0].poll() is not None:
                self._end()
                self._child = start(COMMAND, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
            link = self._child[1]
            link.send_bytes(msgspec.json.encode([os.fspath(folder.resolve()), text]))
            yield b""
            while True:
                with anyio.fail_after(until - anyio.current_time()):
                    await anyio.wait_readable(link.fileno())
                if not (line := link.recv_bytes(LINE)):
                    break
                yield line + b"\n"
            ended = True
        except (OSError, EOFError):
            yield msgspec.json.encode({"error": "the answer took too long, or too much memory"}) + b"\n"
        finally:
            self._busy = False
            if not ended:
                self._end()

    def _end(self) -> None:
        """Ends the process, whatever it does."""
        if self._child:
            process, link = self._child
            link.close()
            process.kill()
            process.wait()
        self._child = None


def main() -> None:
    """Answers questions until the other end is closed, or nothing was asked for a while."""
    link = own_link()
    die_with_parent()
    if sys.platform != "win32":
        os.nice(19)
    known: dict[str, LanguagePolicy] = {}
    while link.poll(IDLE):
        try:
            folder, text = msgspec.json.decode(link.recv_bytes())
        except EOFError:
            return
        try:
            answers(known, Path(folder), text, lambda line: link.send_bytes(msgspec.json.encode(line)))
        except Exception as error:  # a checkpoint may be damaged in many ways
            said = str(error) if isinstance(error, UserError) else in_brief(error)
            link.send_bytes(msgspec.json.encode({"error": said}))
        link.send_bytes(b"")


def answers(known: dict[str, LanguagePolicy], folder: Path, text: str, tell: Callable[[dict[str, str]], None]) -> None:
    """Tells what both models say to `text`, each time all that is said so far. `known`: models that are loaded. Raises
    `UserError`."""
    from shoal.cli.ask import ID, began_with, form_of
    from shoal.config.load import make_config, read_run
    from shoal.policy.decoders.base import OWN, Sampling
    from shoal.policy.fetch import resolve
    from shoal.policy.reading import is_too_much
    from shoal.rollout import Message, Question
    from shoal.runs.folder import CONFIG
    from shoal.runs.models import build_policy
    from shoal.runs.source import source_of

    config = make_config(read_run(folder / CONFIG), CONFIG).resolved()  # which refuses code that it names
    config.policy.engine, config.policy.device, config.threads = OWN, "cpu", 1
    asking: tuple[Message, ...] = ()
    wanted: list[tuple[str, str, str]] = []
    try:
        best = source_of(str(folder))
        wanted = [("after", f"{best.node} after round {best.round}", best.model)]
        began = began_with(config, best.node)
    except UserError:  # there is no checkpoint yet
        tell({"who": "after", "name": "the trained model", "text": "No checkpoint yet."})
        began = began_with(config)
    wanted += [("before", label, resolve(model)) for label, model in began.items()]
    for model in known.keys() - {model for *_, model in wanted}:
        del known[model]
    for who, name, _ in wanted:
        tell({"who": who, "name": name, "text": ""})
    for who, name, model in wanted:
        policy: Any = known.get(model) or build_policy(config, model)
        known[model] = policy
        asking = asking or policy.lm.asking or form_of(config).asking  # as the checkpoint was asked
        question = Question(ID, (Message("user", text),), asking)
        policy.sampling = Sampling(0.0, 1.0, min(TOKENS, int(config.policy.max_completion_length)))

        def say(text: str, who: str = who, name: str = name) -> None:
            tell({"who": who, "name": name, "text": text.rstrip("\ufffd")})  # half a character

        if not policy.has_room(question) or is_too_much(policy, question):
            raise UserError(f"the question is too long for {policy.name}")
        policy.on_text = say
        policy.generate([question], 1, 0)
