"""The simulated network: it adds up, it is a function of its seed, and what it simulates behaves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from simnet.config import NetConfig
from simnet.figures import figures
from simnet.network import START, Network
from simnet.nodes import Link, Observer

from shoal.wire.rollouts import check_signature, open_envelope

SMALL = NetConfig(nodes=16, observers=2, seconds=60, warm_up=20, round_seconds=4.0, session=120.0)


@cache
def ran(config: NetConfig = SMALL) -> Network:
    net = Network(config)
    net.run()
    return net


def test_what_is_sent_is_received_lost_left_or_on_its_way() -> None:
    net = ran()
    counts = net.tally.counts
    assert counts["sent"] > 500
    assert counts["sent"] == counts["received"] + counts["lost"] + counts["left"] + counts["overrun"] + net.unread
    assert counts["lost"] / (counts["lost"] + counts["received"]) == pytest.approx(SMALL.loss, abs=0.02)


def test_what_observers_received_is_refused_used_dropped_or_there() -> None:
    net = ran()
    seen = sum(o.admission.admitted + o.admission.refused.total() for o in net.observers)
    assert seen == net.tally.counts["observed"] > 100
    for one in net.observers:
        waiting = len(one.received) + one.received.lost
        assert one.admission.admitted == one.used + one.dropped + len(one.pool) + waiting
        assert one.used > 0


def test_listeners_are_those_who_listen() -> None:
    net = ran()
    heard = Counter(id for node in net.nodes.values() for id in node.links)
    assert {id: node.listeners for id, node in net.nodes.items() if node.listeners} == dict(heard)
    assert all(set(node.links) == set(node.neighbours.chosen) for node in net.nodes.values() if node.alive)


def test_honest_nodes_commit_no_offence() -> None:
    reasons = {reason for one in ran().observers for reason in one.admission.refused}
    assert reasons <= {"duplicate", "replay", "quota"}
    assert not any(peer.offences for one in ran().observers for peer in one.admission.peers.by_key.values())


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figures_and_another_does_not() -> None:
    again, other = Network(SMALL), ran(replace(SMALL, seed=1))
    again.run()
    assert figures(again) == pytest.approx(figures(ran()), nan_ok=True)
    assert figures(other) != figures(ran())


def test_messages_are_real_and_as_long_as_they_count() -> None:
    net = ran()
    maker = next(node for node in net.nodes.values() if not isinstance(node, Observer) and node.round > 2)
    batch = maker.batches[-1]
    messages = [net.seal(maker, maker.round, slot) for slot in range(SMALL.local)]
    for message, answers in zip(messages, batch.answers, strict=True):
        statement, envelope = open_envelope(message)
        assert check_signature(envelope, statement)
        rewards = net.score([(statement.rollout.question, [c.text for c in statement.rollout.completions])])[0]
        assert rewards == [float(n == 0) for n in answers]
    assert sum(map(len, messages)) == pytest.approx(batch.size, rel=0.02)


def test_loss_takes_as_much_as_it_says_and_delay_makes_stale() -> None:
    far = ran(replace(SMALL, loss=0.5, delay=4.0))
    counts = far.tally.counts
    assert counts["lost"] / (counts["lost"] + counts["received"]) == pytest.approx(0.5, abs=0.05)
    near = figures(ran())
    assert figures(far)["staleness p50 (s)"] > near["staleness p50 (s)"]


def test_nobody_hears_across_a_cut_and_those_who_kept_their_place_hear_again() -> None:
    config = replace(SMALL, cut=(20.0, 40.0), session=1e9)
    net = Network(config)
    came: list[tuple[float, bool]] = []
    for_real = Observer._arrive

    def arrive(self: Observer, link: Link, data: bytes) -> None:
        came.append((self.net.now, link.maker.side != self.side))
        for_real(self, link, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Observer, "_arrive", arrive)
        net.run()
    across = [at - START for at, other in came if other]
    assert not [at for at in across if 25 < at < 40]
    assert [at for at in across if at > 40]


def test_alone_there_is_nothing_to_hear() -> None:
    net = ran(replace(SMALL, nodes=1, observers=1))
    assert net.tally.counts["sent"] == 0
    assert figures(net)["rounds with fewer than J (%)"] == 100.0


def test_sizes_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="observer"):
        Network(replace(SMALL, observers=25))
    with pytest.raises(ValueError, match="warm_up"):
        Network(replace(SMALL, warm_up=90.0))
