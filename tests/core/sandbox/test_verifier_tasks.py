"""Tasks with scorers that misbehave, for test_verifier.py, whose workers import this module."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from shoal.rollout import Message, Question, QuestionId, hash_of


class Echo:
    """Asks for its own index. Scores 1 for it, and does what an answer of the form "verb argument" asks for."""

    name, version = "echo", "1"

    def __init__(self, salt: str = "") -> None:
        self.config = hash_of({"salt": salt})

    def question(self, seed: int, index: int) -> Question:
        identity = QuestionId(self.name, self.version, self.config, seed, index)
        return Question(identity, (Message("user", f"say {seed} {index}"),))

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        return [self._score(question, answer) for answer in answers]

    def _score(self, question: QuestionId, answer: str) -> float:
        verb, _, argument = answer.partition(" ")
        match verb:
            case "loop":
                while True:
                    pass
            case "work":
                end = time.process_time() + float(argument.split()[0])
                while time.process_time() < end:
                    pass
            case "sleep":
                time.sleep(float(argument))
            case "raise":
                raise RuntimeError(argument)
            case "recurse":
                return self._score(question, answer)
            case "exit":
                os._exit(int(argument))
            case "sys.exit":
                sys.exit(0)
            case "allocate":
                hoard = []
                while True:
                    hoard.append(bytes(2**26))
            case "print":
                print(argument * 1000, flush=True)
                print(argument * 1000, file=sys.stderr, flush=True)
            case "read":
                sys.stdin.read()
            case "nan":
                return float("nan")
            case "beyond":
                return float(argument)
            case "system":
                os.system(f"touch {argument}")
            case "write":
                Path(argument).write_text("x")
            case "swallow":
                try:
                    Path(argument).write_text("x")
                except OSError:
                    return 1.0
            case "connect":
                socket.create_connection(("127.0.0.1", int(argument)), timeout=1)
            case "eval":
                eval(argument)
            case "import":
                import wave  # has a NamedTuple, which is made by exec of a text

                return float(bool(wave))
        return 1.0 if answer.split()[-1:] == [str(question.index)] else 0.25 * answer.isdigit()


class Slow(Echo):
    """Takes its time to make a question, once in each process."""

    name = "slow"
    made = False

    def question(self, seed: int, index: int) -> Question:
        if not self.made and sys.argv[0] == "-c":
            end = time.process_time() + 1.0
            while time.process_time() < end:
                pass
            self.made = True
        return super().question(seed, index)


class Thorough(Echo):
    """Takes its time with every answer."""

    name = "thorough"

    def _score(self, question: QuestionId, answer: str) -> float:
        end = time.process_time() + 0.4
        while time.process_time() < end:
            pass
        return super()._score(question, answer)


class Threaded(Echo):
    """Has a thread that a fork would not have."""

    name = "threaded"

    def __init__(self) -> None:
        super().__init__()
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


class Broken:
    """Cannot be made in the worker, only here."""

    name, version, config = "broken", "1", "0"
    question = Echo.question
    score = Echo.score

    def __init__(self) -> None:
        if sys.argv[0] == "-c":
            os._exit(3)


NOT_A_TASK = dict
