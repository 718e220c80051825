"""What a node takes of what comes under its neighbours' key expressions. Real sessions are in `test_network`."""

from __future__ import annotations

from collections import Counter
from random import Random

from shoal.admission.bounded import RecentKeys
from shoal.admission.clocks import Clocks
from shoal.transports.zenoh.key_expressions import Keys
from shoal.transports.zenoh.neighbours import Neighbours
from shoal.transports.zenoh.offers import digest_of
from shoal.transports.zenoh.subscriptions import Subscriptions


def test_a_message_that_came_is_not_passed_on_or_asked_for_again() -> None:
    came: list[bytes] = []
    dropped: Counter[str] = Counter()
    mine = Subscriptions(
        Keys("reef"),
        "me",
        lambda peer, data: came.append(data),
        neighbours=Neighbours("me", Random(0)),
        dropped=dropped,
        clocks=Clocks(),
    )
    heard = mine._heard["bob"] = RecentKeys(10)
    for data in (b"long text", b"long text", b"ok"):
        mine._arrived("bob", data)
    assert came == [b"long text", b"ok"]
    assert dropped == {"repeated": 1}
    assert digest_of(b"long text") in heard
