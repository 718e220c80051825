"""Calls that go on side by side and meet: what several of them ask for is worked out in one go.

Each call has a thread of its own, but only one of them runs at a time, in order, until it asks for something or ends.
Once none can go on, what they ask for is worked out in the thread of whoever called `together`. So nothing has to be
safe for threads, a run is as repeatable as with a plain loop, and nobody can be left waiting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

Answer = Callable[[Any, dict[int, Any]], dict[int, Any]]
"""Of a key and the work of each who asked, by number, makes what each of them gets."""


class Company:
    """Who is on the way together."""

    def __init__(self) -> None:
        self._here = threading.local()

    @property
    def present(self) -> bool:
        """Whether the one who asks this is among the calls of `together`."""
        return getattr(self._here, "member", None) is not None

    def together(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Makes these calls and returns what they return. An error in one of them, or in what is worked out for
        several, ends all and is raised."""
        members = [_Member(call, self._here) for call in calls]
        try:
            while going := [member for member in members if not member.ended]:
                for member in going:
                    member.resume()
                _answer([member for member in going if not member.ended])
        finally:
            for member in members:
                member.cancel()
        return [member.result for member in members]

    def ask(self, answer: Answer, key: Hashable, number: int, work: Any) -> Any:
        """What `answer(key, {number: work, ...})` has for `number`; waits until all others wait too. What is asked of
        the same `answer` with an equal `key` is worked out at once."""
        member: _Member = self._here.member
        return member.ask(_Wish(answer, key, number, work))


@dataclass(frozen=True)
class _Wish:
    answer: Answer
    key: Hashable
    number: int
    work: Any


class _Cancelled(BaseException):
    """Ends a call whose result nobody waits for any more; no `except Exception` should stop it."""


class _Member:
    """One call and its thread."""

    def __init__(self, call: Callable[[], Any], here: threading.local) -> None:
        self._call, self._here = call, here
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._cancelled = False
        self._error: BaseException | None = None
        self.wish: _Wish | None = None
        self.answer: Any = None
        self.result: Any = None
        self.ended = False

    def resume(self) -> None:
        """Lets it run until it asks for something or ends. Raises what it raises."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()
        if self._error is not None:
            raise self._error

    def ask(self, wish: _Wish) -> Any:
        self.wish = wish
        self._back.release()
        self._go.acquire()
        if self._cancelled:
            raise _Cancelled
        answer, self.answer = self.answer, None
        return answer

    def cancel(self) -> None:
        """Ends it wherever it waits."""
        self._cancelled = True
        if self._thread.ident is not None:
            self._go.release()
            self._thread.join()

    def _run(self) -> None:
        self._here.member = self
        try:
            self.result = self._call()
        except BaseException as error:  # it is raised where `together` was called
            self._error = error
        self.ended = True
        self._back.release()


def _answer(members: Sequence[_Member]) -> None:
    groups: dict[tuple[Answer, Hashable], dict[int, _Member]] = {}
    for member in members:
        assert member.wish is not None
        groups.setdefault((member.wish.answer, member.wish.key), {})[member.wish.number] = member
    for (answer, key), group in groups.items():
        answers = answer(key, {number: member.wish.work for number, member in group.items() if member.wish})
        for number, member in group.items():
            member.answer = answers[number]
