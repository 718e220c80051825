"""What the window hears from the nodes of a swarm."""

from __future__ import annotations

import msgspec
import pytest

from shoal.identity.keys import Identity
from shoal.wire.notices import Notice
from shoal_web.registry import Registry

NOW = 1000.0


@pytest.fixture(scope="module")
def ada(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return Identity.load_or_create(tmp_path_factory.mktemp("ada") / "identity.pem")


def notice(identity: Identity, **changes: object) -> Notice:
    said = Notice(1, "reef", identity.public, NOW, 7, "guppy", 0.25, None, ())
    return msgspec.structs.replace(said, **changes)


def test_old_notices_that_are_sent_again_neither_count_nor_silence_their_sender(ada: Identity) -> None:
    registry = Registry(lambda: True)
    of_the_last_run = notice(ada, round=400)
    now = notice(ada, round=3, time=NOW + 100)
    assert registry.hear(of_the_last_run, NOW)
    assert registry.hear(now, NOW + 100)
    for _ in range(50):
        assert registry.hear(of_the_last_run, NOW + 101) is None
        assert registry.hear(now, NOW + 101) is None
    assert registry.hear(notice(ada, round=4, time=NOW + 101), NOW + 101)
