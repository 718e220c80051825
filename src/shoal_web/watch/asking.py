"""A question of a person to the model of a run before and after: the view Ask, and the process that answers.

    asker = Asker()
    asker.begin(folder, "8 + 7 =")       # raises `BusyError` while another question is being answered
    while line := asker.next():          # JSON: {"who": "after", "name": "node-2 after round 40", "text": "1"}
        ...

The process computes with one thread, and only when nothing else wants the processor (`nice`), so that a run goes on.
It reads the newest checkpoint at each question, and ends after a while without one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import zip_longest
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from shoal.child import command, die_with_parent, own_link, start
from shoal.errors import UserError, in_brief
from shoal_web.watch.source import BusyError

if TYPE_CHECKING:
    from shoal.policy.language import LanguagePolicy
    from shoal.rollout import Question

TOKENS, TOGETHER = 256, 6
"""Tokens of an answer, at most, and those that come together."""
PATIENCE: Final = 180.0
"""Seconds for a question, the loading of models included."""
IDLE: Final = 300.0
"""Seconds without a question after which the process ends."""
COMMAND: Final = command("shoal_web.watch.asking")


class Asker:
    """Asks one question at a time. Close it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._link: Connection | None = None
        self._until = 0.0
        """When the question under way has had its time; 0: there is none."""

    def begin(self, folder: Path, text: str) -> None:
        """Sends a question about the run in `folder`. Raises `BusyError`."""
        with self._lock:
            if time.monotonic() < self._until:
                raise BusyError("another question is being answered: ask again when it is")
            if self._until or self._process is None or self._process.poll() is not None:
                self.close()
                self._process, self._link = start(COMMAND, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
            self._until = time.monotonic() + PATIENCE
        assert self._link is not None
        self._link.send_bytes(msgspec.json.encode([os.fspath(folder.resolve()), text]))

    def next(self) -> bytes:
        """The next line of the answers; empty at their end."""
        link = self._link
        try:
            if link is not None and link.poll(max(0.0, self._until - time.monotonic())):
                return link.recv_bytes() or self._ended()
        except (OSError, EOFError):
            pass
        self.close()
        return msgspec.json.encode({"error": "the answer took too long, or too much memory"})

    def close(self) -> None:
        """Ends the process, whatever it does; a question under way gets no further answer."""
        if self._link is not None and self._process is not None:
            self._link.close()
            self._process.kill()
            self._process.wait()
        self._process = self._link = None
        self._until = 0.0

    def stop(self) -> None:
        """Ends a question that nobody waits for any more."""
        if self._until:
            self.close()

    def _ended(self) -> bytes:
        self._until = 0.0
        return b""


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
            for line in answers(known, Path(folder), text):
                link.send_bytes(msgspec.json.encode(line))
        except UserError as error:
            link.send_bytes(msgspec.json.encode({"error": str(error)}))
        except Exception as error:  # a checkpoint may be damaged in many ways
            link.send_bytes(msgspec.json.encode({"error": in_brief(error)}))
        link.send_bytes(b"")


def answers(known: dict[str, LanguagePolicy], folder: Path, text: str) -> Iterator[dict[str, str]]:
    """What both models say to `text`, by turns, each time all that is said so far. `known`: models that are loaded.
    Raises `UserError`."""
    from shoal.cli.ask import form_of
    from shoal.config.load import make_config, read_config
    from shoal.policy.decoders.base import OWN
    from shoal.policy.fetch import resolve
    from shoal.rollout import Message
    from shoal.runs.folder import CONFIG
    from shoal.runs.models import build_policy
    from shoal.runs.source import source_of

    config = make_config(read_config(folder / CONFIG), CONFIG).resolved()
    config.policy.engine, config.policy.device, config.threads = OWN, "cpu", 1
    form = form_of(config)
    question = msgspec.structs.replace(form, prompt=(*form.prompt[:-1], Message("user", text)), turns=1)
    began, newest = config.policy.model[0], None
    try:
        newest = source_of(str(folder))
        began = config.node_models.get(newest.node, began)
    except UserError:  # there is no checkpoint yet
        yield {"who": "after", "name": "the trained model", "text": "No checkpoint yet."}
    wanted = [("before", resolve(began), f"{began}, before training")]
    if newest:
        wanted.append(("after", newest.model, f"{newest.node}, after round {newest.round}"))
    for model in known.keys() - {model for _, model, _ in wanted}:
        del known[model]
    for who, model, title in wanted:
        yield {"who": who, "name": title, "text": ""}
        if model not in known:
            policy: Any = build_policy(config, model)
            known[model] = policy
    longest = min(TOKENS, int(config.policy.max_completion_length))
    for turn in zip_longest(*(said(known[model], question, longest) for _, model, _ in wanted)):
        for (who, _, title), so_far in zip(wanted, turn, strict=True):
            if so_far is not None:
                yield {"who": who, "name": title, "text": so_far}


def said(policy: LanguagePolicy, question: Question, longest: int) -> Iterator[str]:
    """The most likely answer, each time all of it so far. Raises `UserError` for a question that is too long."""
    from shoal.policy.decoders.base import Request, Sampling

    prompt, ids = policy.prompt_ids(question), list[int]()
    if len(prompt) + longest > policy.context:
        raise UserError(f"the question is too long for {policy.name}")
    tokenizer: Any = policy.lm.tokenizer
    policy.decoder.update_weights()
    while len(ids) < longest:
        sampling = Sampling(0.0, 1.0, min(TOGETHER, longest - len(ids)))
        [[found]] = policy.decoder.decode(Request([prompt + ids], 1, [0], sampling, policy.lm.stop_ids))
        ids += found.token_ids
        text = tokenizer.decode(
            [id for id in ids if id not in policy.lm.stop_ids],
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )
        yield text.rstrip("\ufffd")  # half a character
        if found.stopped or not found.token_ids:
            return
