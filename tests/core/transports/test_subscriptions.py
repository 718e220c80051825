"""What a node takes of what comes under its neighbours' key expressions. Real sessions are in `test_network`."""

from __future__ import annotations

from shoal.admission.bounded import RecentKeys
from shoal.transports.zenoh.key_expressions import Keys
from shoal.transports.zenoh.offers import digest_of
from shoal.transports.zenoh.subscriptions import Subscriptions


def test_a_message_that_is_too_large_is_not_asked_for_again() -> None:
    came: list[bytes] = []
    mine = Subscriptions(Keys("reef"), "me", lambda peer, data: came.append(data), max_bytes=4, is_own=lambda _: False)
    heard = mine._heard["bob"] = RecentKeys(10)
    for data in (b"long text", b"long text", b"ok"):
        mine._arrived("bob", data)
    assert came == [b"ok"]
    assert mine.dropped == {"size": 1, "repeated": 1}
    assert digest_of(b"long text") in heard
