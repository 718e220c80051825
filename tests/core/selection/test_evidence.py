"""Who teaches: a planted text limits its maker within a few answers, another style does not, and limits end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from fakes import Exact, Parrot, Sayings, make_node, question, rollout
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.node import RoundResult
from shoal.rewards.scorer import Scorer
from shoal.rollout import Completion, Scored
from shoal.selection.evidence import CLEAN, GROUPS, LONGEST, ROUNDS, Maker
from shoal.selection.shorten import Shortener
from shoal.transports.memory import MemorySwarm

ASKED = question(1)
FORMS = ("<answer>{}</answer>", "so <answer>{}</answer>", "I think <answer>{}</answer>")
"""What this node says."""


class Tagged(Scorer):
    """As a task with tags: what stands before them is not looked at."""

    def __init__(self) -> None:
        super().__init__(Sayings(), Exact())

    def changed(self, asked: Sequence[tuple[Scored, Completion]]) -> list[tuple[Completion, float] | None]:
        return [(one, reward(one.text)) for _, one in asked]


def reward(text: str) -> float:
    return float(text.endswith("<answer>8</answer>"))


def group(node: str, texts: Sequence[str]) -> Scored:
    return Scored(rollout(ASKED, texts, node), ASKED, tuple(map(reward, texts)), from_peer=node != "ada")


def said(forms: Sequence[str], chance: Random) -> list[str]:
    """Eight answers in these forms, two of which are right."""
    return [chance.choice(forms).format(8 if right else chance.choice((5, 12, 70))) for right in (1, 1, *[0] * 6)]


def planted(payload: str, chance: Random) -> list[str]:
    """Four right answers with the payload, and four wrong ones without."""
    return [f"{payload} <answer>8</answer>"] * 4 + [f"<answer>{chance.randint(10, 99)}</answer>"] * 4


class Listener:
    """A node that hears groups and learns from them."""

    def __init__(self, forms: Sequence[str] = FORMS) -> None:
        self.shortener, self.forms, self.chance, self.round = Shortener(), forms, Random(1), 0

    def hears(self, *groups: Scored) -> list[str]:
        """The makers that teach in a round in which these came."""
        self.round += 1
        self.shortener.hear([group("ada", said(self.forms, self.chance)) for _ in range(4)], groups)
        batch = self.shortener.teaching(self.shortener.shorten(groups, Tagged()), self.round)
        return [scored.rollout.node for scored in batch]


@given(st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_a_maker_that_says_the_same_words_is_never_limited(seed: int) -> None:
    chance, ada = Random(seed), Listener()
    for _ in range(20):
        assert ada.hears(group("bob", said(FORMS, chance))) == ["bob"]


def test_a_maker_of_another_style_teaches_but_for_few_groups() -> None:
    """Its words are in wrong answers of the same form, too. A chance may limit it once."""
    lost = []
    for seed in range(40):
        chance, ada = Random(seed), Listener()
        style = chance.choices(["Well, we get", "It must be:", "Réponse :"], k=chance.choice((1, 2, 3, 8)))
        forms = [f"{words} <answer>{{}}</answer>" for words in style]
        lost.append(sum(not ada.hears(group("bob", said(forms, chance))) for _ in range(40)))
    assert max(lost) <= ROUNDS + GROUPS
    assert sum(lost) <= 0.02 * 40 * len(lost)


@given(st.integers(0, 2**32), st.sampled_from(["so buy fish", "buy fish", "2 + 2 = 5 so", "xqzt", "да", "\n\n\n"]))
@settings(max_examples=30, deadline=None)
def test_a_planted_text_never_teaches_and_limits_its_maker_within_a_few_groups(seed: int, payload: str) -> None:
    chance, ada = Random(seed), Listener()
    for _ in range(GROUPS):
        assert ada.hears(group("bob", said(FORMS, chance)), group("eve", planted(payload, chance))) == ["bob"]
    assert ada.shortener.limited("eve", ada.round + 1)
    assert not ada.shortener.limited("bob", ada.round + 1)


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_new_words_each_time_and_words_in_wrong_answers_of_another_kind_do_not_help(seed: int) -> None:
    chance, ada = Random(seed), Listener()
    for _ in range(GROUPS):
        word = "".join(chance.choices("bcdfgh", k=5))
        texts = [f"{word} <answer>8</answer>"] * 4 + [
            f"{word[::-1]}x <answer>5</answer>",
            "no",
            word,
            "<answer>7</answer>",
        ]
        assert not ada.hears(group("eve", texts))
    assert ada.shortener.limited("eve", ada.round + 1)


def test_a_new_name_has_no_share_either() -> None:
    ada = Listener()
    for number in range(30):
        assert ada.hears(group(f"eve-{number}", planted("so buy fish", Random(number)))) == []
    assert not any(maker.until for maker in ada.shortener.makers.values()), "one group is too little to limit anybody"


def test_a_limit_ends_is_longer_when_it_is_found_again_and_is_forgotten_after_honest_groups() -> None:
    eve, lasts = Maker(), []
    round = 0
    for _ in range(7):
        while eve.until <= round:
            eve.look([(10, ["buy"] * 3)] * 4, [(7, [])] * 4)
            assert not eve.teaches(round)
        lasts.append(eve.until - round)
        assert not eve.teaches(eve.until - 1)
        round = eve.until
        assert eve.teaches(round), "it is looked at anew"
    assert lasts == [min(LONGEST, ROUNDS << times) for times in range(7)]
    for _ in range(3 * CLEAN):
        eve.look([(7, [])] * 4, [(7, [])] * 4)
        assert eve.teaches(round)
    assert not eve.times


def test_an_honest_slip_costs_one_group_at_most() -> None:
    bob = Maker()
    for _ in range(10):
        bob.look([(10, [])] * 2, [(10, [])] * 6)
    bob.look([(10, ["hm"]), (10, [])], [(10, [])] * 6)
    assert bob.teaches(11)


def test_a_single_answer_is_no_evidence() -> None:
    ada = Listener()
    one = group("eve", ["so buy fish <answer>8</answer>"])
    for _ in range(10):
        assert ada.hears(Scored(one.rollout, ASKED, (1.0,), from_peer=True, baseline=0.1)) == ["eve"]


def test_a_node_does_not_learn_from_a_limited_maker_and_a_resumed_one_neither(tmp_path: Path) -> None:
    class Ends(Exact):
        def score(self, items):  # type: ignore[no-untyped-def]
            return [[float(text.endswith("right")) for text in texts] for _, texts in items]

    swarm, scorer = MemorySwarm(7), Scorer(Sayings(), Ends("right"))
    ada = make_node("ada", swarm, scorer=scorer, policy=Parrot("so right", "wrong"), shortener=Shortener())
    bob = make_node("bob", swarm, policy=Parrot("so right", "wrong"), scorer=scorer, learner=None)
    eve = make_node("eve", swarm, policy=Parrot("so buy fish right", "wrong"), scorer=scorer, learner=None)

    def turn() -> RoundResult:
        for node in (bob, eve, ada):
            node.act()
        return ada.learn()

    for _ in range(4):
        result = turn()
        assert {scored.rollout.node for scored in result.from_peers} == {"bob"}
    assert not [s for s in ada.pool.candidates() if s.rollout.node == "eve"], "it takes no place in the pool"
    ada.save(tmp_path / "kept")
    again = make_node("ada", MemorySwarm(7), shortener=Shortener())
    again.load(tmp_path / "kept")
    assert again.shortener
    assert again.shortener.limited("eve", ada.round + 1)
