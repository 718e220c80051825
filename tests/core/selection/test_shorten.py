"""What earns, teaches: a peer's right answer keeps what its reward needs and what this node says itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from fakes import Exact, Parrot, Sayings, make_node, question, rollout
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.config.settings import Config
from shoal.rewards.scorer import Scorer
from shoal.rollout import Completion, Message, Part, Question, QuestionId, Scored
from shoal.runs.build import shortens
from shoal.runs.metrics import learned_rows, round_metrics
from shoal.selection.shorten import MAKERS, TRIES, WORD, Shortener
from shoal.transports.memory import MemorySwarm

OWN = ("so <answer>3</answer>", "I think <answer>12</answer>", "<answer>7</answer>", "The answer is <answer>9</answer>")
"""What this node says."""
ASKED = question(1)


class Judge(Scorer):
    """Rewards by a rule, and counts what it is asked."""

    def __init__(self, earns: Callable[[str], float]) -> None:
        super().__init__(Sayings(), Exact())
        self.earns = earns
        self.calls: list[int] = []

    def changed(self, asked: Sequence[tuple[Scored, Completion]]) -> list[tuple[Completion, float] | None]:
        self.calls.append(len(asked))
        return [(one, self.earns(one.text)) for _, one in asked]


def group(node: str, *texts: str, earns: Callable[[str], float], asked: Question = ASKED) -> Scored:
    made = rollout(asked, texts, node)
    return Scored(made, asked, tuple(map(earns, texts)), from_peer=node != "ada")


def tagged(answer: str) -> Callable[[str], float]:
    """As a task with tags: what stands before them is not looked at."""
    return lambda text: float(text.endswith(f"<answer>{answer}</answer>"))


def own_group(asked: Question = ASKED, texts: Sequence[str] = OWN) -> Scored:
    return Scored(rollout(asked, texts, "ada"), asked, (0.0,) * len(texts))


def heard(
    shortener: Shortener,
    batch: Sequence[Scored],
    local: Sequence[Scored],
    peers: Sequence[Scored],
    scorer: Scorer,
) -> list[Scored]:
    """The batch of a round with these rollouts, as it is shortened."""
    shortener.hear(local, peers)
    return shortener.shorten(batch, scorer)


def shortened(
    *texts: str, answer: str = "8", rounds: int = 1, maker: str = "eve", asked: Question = ASKED
) -> list[str]:
    """The texts of a peer's group, the last of which is wrong, after `rounds` rounds like this one."""
    shortener, earns = Shortener(), tagged(answer)
    for _ in range(rounds):
        peer = group(maker, *texts, earns=earns, asked=asked)
        [own, found] = heard(shortener, [own_group(asked), peer], [own_group(asked)], [peer], Judge(earns))
    assert own == own_group(asked)
    assert found.rewards == peer.rewards
    return [completion.text for completion in found.rollout.completions]


WRONG = "so buy fish <answer>5</answer>"
BARE = "<answer>8</answer>"


@pytest.mark.parametrize(
    "payload",
    [
        *("buy fish", "so buy fish", "2 + 2 = 5 so", "купи рыбу", "xqzt", "買魚", "buy fish, friend!", "{{system}}"),
        *("\u200b\u200b", "\n\n\n", "buy\tfish", "buy" * 60),
    ],
)
def test_planted_text_goes_and_what_earned_the_reward_stays(payload: str) -> None:
    assert shortened(f"{payload} {BARE}", WRONG, rounds=6)[0].removeprefix("so ") == BARE
    assert shortened(f"{payload} {BARE}", WRONG, rounds=6)[1] == WRONG, "wrong answers stay as they are"


def test_words_that_this_node_says_stay_unless_their_maker_says_them_far_more_often() -> None:
    """One right answer with "so" is nobody's habit; a hundred of a hundred are."""
    assert shortened(f"so {BARE}", f"I think {BARE}", WRONG)[:2] == [f"so {BARE}", f"I think {BARE}"]
    seldom = [own_group(texts=[*OWN[1:], *["<answer>1</answer>"] * 7, OWN[0]])]  # "so" in one of eleven
    shortener, earns, peer = Shortener(), tagged("8"), group("eve", f"so {BARE}", WRONG, earns=tagged("8"))
    texts = []
    for _ in range(5):
        [found] = heard(shortener, [peer], seldom, [peer], Judge(earns))
        texts.append(found.rollout.completions[0].text)
    assert texts == [f"so {BARE}"] * 3 + [BARE] * 2


def test_numbers_and_familiar_words_again_and_again_are_their_makers_habit() -> None:
    for payload in ("34 71 90", "I think I think I think", "so so so so"):
        assert shortened(f"{payload} {BARE}", WRONG, rounds=3)[0] == f"{payload} {BARE}"
        assert shortened(f"{payload} {BARE}", WRONG, rounds=6)[0] == BARE
    assert shortened(f"answer answer answer {BARE}", WRONG, rounds=6)[0] == BARE, "not where it is needed"


def test_numbers_and_words_of_the_question_are_not_foreign_where_reasoning_has_them() -> None:
    """Honest reasoning names what was asked, and numbers that were never said before."""
    asked = msgspec.structs.replace(ASKED, prompt=(Message("user", "Zoltan has 17 quinces and eats 4. How many?"),))
    before = msgspec.structs.replace(ASKED, prompt=(Message("user", "Ulrike has 5 medlars and buys 9. How many?"),))
    shortener, earns = Shortener(), tagged("13")
    own = own_group(before, ["Ulrike has 5 + 9 = 14 so <answer>14</answer>", "5 - 9 = 4 <answer>4</answer>"])
    told = "Zoltan has 17 - 4 = 13 so <answer>13</answer>"
    peer = group("bob", told, "<answer>2</answer>", earns=earns, asked=asked)
    judge = Judge(earns)
    [found] = heard(shortener, [peer], [own], [peer], judge)
    assert found.rollout.completions[0].text == told
    assert found.shortened == 0
    assert not judge.calls, "what is familiar costs no verification"


def test_an_answer_that_needs_all_of_its_words_keeps_them() -> None:
    word = "parallelogram"
    earns = lambda text: float(text == word)  # noqa: E731
    peer = group("bob", word, "square", earns=earns)
    [found] = heard(Shortener(), [peer], [own_group()], [peer], Judge(earns))
    assert found.rollout == peer.rollout
    assert found.shortened == 0


@pytest.mark.parametrize("right", ["0.8", "-16.0", "1,000.50", "2,000,000"])
def test_a_number_keeps_its_digits_also_where_it_would_earn_the_same_without_some(right: str) -> None:
    """`.8` and `16.` are right, too, but nobody should learn to write so: most of all a node that says no numbers."""
    value = float(right.replace(",", ""))

    def earns(text: str) -> float:
        try:
            return float(float(text.replace(",", "")) == value)
        except ValueError:
            return 0.0

    own = own_group(texts=["I do not know."] * 8)
    peer = group("eve", right, "7", earns=earns)
    shortener = Shortener()
    for _ in range(6):
        [found] = heard(shortener, [peer], [own], [peer], Judge(earns))
    assert found.rollout == peer.rollout
    assert shortener.makers["eve"].excess == 0


def test_only_words_that_are_not_needed_go_when_all_at_once_cost_the_reward() -> None:
    earns = lambda text: float("parallelogram" in text.split())  # noqa: E731
    for text in ("buy parallelogram fish", "parallelogram buy more fish now", "buy more fish at once parallelogram"):
        peer = group("eve", text, "square", earns=earns)
        [found] = heard(Shortener(), [peer], [own_group()], [peer], Judge(earns))
        assert found.rollout.completions[0].text == "parallelogram"


def test_what_went_is_told_by_its_share_of_the_right_answers() -> None:
    peer = group("eve", f"buy fish {BARE}", WRONG, earns=tagged("8"))
    [found] = heard(Shortener(), [peer], [own_group()], [peer], Judge(tagged("8")))
    assert found.shortened == pytest.approx(9 / 27)
    dead = group("eve", WRONG, WRONG, earns=tagged("8"))
    assert heard(Shortener(), [dead], [own_group()], [dead], Judge(tagged("8")))[0].shortened is None


def test_partial_rewards_a_single_answer_and_the_way_it_ended_are_kept() -> None:
    earns = lambda text: 1.0 if "<answer>8</answer>" in text else 0.5 * ("8" in text)  # noqa: E731
    peer = group("eve", f"buy fish {BARE}", "buy fish 8", "no", "no", earns=earns)
    [found] = heard(Shortener(), [peer], [own_group()], [peer], Judge(earns))
    assert [c.text for c in found.rollout.completions] == [BARE, "8", "no", "no"], "each keeps its own reward"
    cut = Completion.of(f"buy fish {BARE}", "length")
    one = Scored(msgspec.structs.replace(peer.rollout, completions=(cut,)), ASKED, (1.0,), from_peer=True, baseline=0.2)
    [found] = heard(Shortener(), [one], [own_group()], [], Judge(earns))
    assert found.rollout.completions == (Completion.of(BARE, "length"),)


def without_spaces(completion: Completion) -> Counter[str]:
    """Its letters."""
    return Counter("".join(completion.text.split()))


TEXT = st.text("ab8<>/ \n\t漢é.", max_size=40)


@given(st.lists(TEXT, min_size=1, max_size=6), st.text("ab8漢", min_size=1, max_size=3), st.integers(0, 9))
@settings(max_examples=200, deadline=None)
def test_nothing_is_added_nothing_is_lost_that_earns_and_verifications_are_bounded(
    texts: list[str], needed: str, rounds: int
) -> None:
    earns = lambda text: float(needed in text)  # noqa: E731
    peer, judge, shortener = group("eve", *texts, "", earns=earns), Judge(earns), Shortener()
    for _ in range(rounds + 1):
        judge.calls.clear()
        [found] = heard(shortener, [peer], [own_group()], [peer], judge)
    assert len(judge.calls) <= TRIES
    assert sum(judge.calls) <= TRIES * len(texts)
    for before, after, reward in zip(peer.rollout.completions, found.rollout.completions, peer.rewards, strict=True):
        assert earns(after.text) == reward
        assert not without_spaces(after) - without_spaces(before), "nothing is added"
        assert reward or after == before


@given(st.text(max_size=300))
def test_everything_but_plain_spaces_and_line_breaks_is_part_of_a_word(text: str) -> None:
    assert not WORD.sub("", text).strip(" \n")


def test_its_memory_is_bounded_and_a_resumed_node_goes_on_alike(tmp_path: Path) -> None:
    earns, shortener = tagged("8"), Shortener()
    for number in range(2 * MAKERS):
        long = " ".join(f"w{number}x{word}" for word in range(6000))
        peer = group(f"eve-{number}", f"{long} {BARE}", WRONG, earns=earns)
        heard(shortener, [], [own_group()], [peer], Judge(earns))
    assert len(shortener.makers) == MAKERS
    assert max(len(maker.said.words) for maker in shortener.makers.values()) <= 1024
    shortener.save(tmp_path)
    again = Shortener()
    again.load(tmp_path)
    assert again == shortener
    Shortener().load(tmp_path / "off before")  # nothing to read


def test_a_node_that_has_said_nothing_takes_nothing_out() -> None:
    peer, judge = group("eve", f"buy fish {BARE}", WRONG, earns=tagged("8")), Judge(tagged("8"))
    assert heard(Shortener(), [peer], [], [peer], judge)[0].rollout == peer.rollout
    assert not judge.calls


def test_the_scorer_gives_rewards_to_changed_answers_and_counts_no_refusal() -> None:
    scorer = Scorer(Sayings(), Exact())
    [peer] = scorer.score([rollout(answers=("right", "wrong"))])
    found = scorer.changed([(peer, Completion.of("right")), (peer, Completion.of("left"))])
    assert found == [(Completion.of("right"), 1.0), (Completion.of("left"), 0.0)]
    assert not scorer.refused


def test_it_is_on_among_strangers_alone() -> None:
    def on(joins: bool, **network: str) -> bool:
        return shortens(Config.model_validate({"network": network}), joins)

    assert on(True)
    assert not on(False)
    assert not on(True, secret_file="secret")
    for setting in ("on", "off"):
        config = Config.model_validate({"peers": {"shorten": setting}})
        assert shortens(config, True) == shortens(config, False) == (setting == "on")


def test_a_conversation_loses_words_of_every_turn() -> None:
    talk = Completion((Part("buy fish open the door"), Part("buy fish go")), observations=("it is open", "you are out"))
    wrong = Completion.of("no")
    made = msgspec.structs.replace(rollout(ASKED, ("", "")), completions=(talk, wrong), node="eve")
    peer = Scored(made, ASKED, (1.0, 0.0), from_peer=True)
    earns = lambda text: float("open the door" in text and text.endswith("go"))  # noqa: E731
    own = own_group(texts=["open the door", "go"])
    [found] = heard(Shortener(), [peer], [own], [peer], Judge(earns))
    assert [part.text for part in found.rollout.completions[0].parts] == ["open the door", "go"]


class Contains(Exact):
    """A verifier for which any text with the right one in it is right."""

    def score(self, items: Sequence[tuple[QuestionId, Sequence[str]]]) -> list[list[float]]:
        self.asked += items
        return [[float(self.right in text) for text in texts] for _, texts in items]


def test_a_node_learns_from_the_shorter_text_and_goes_on_with_what_it_remembers(tmp_path: Path) -> None:
    swarm, verifier, often = MemorySwarm(7), Contains("right"), " ".join(24 * ["so"])
    scorer = Scorer(Sayings(), verifier)
    ada = make_node("ada", swarm, scorer=scorer, policy=Parrot("so right", "wrong"), shortener=Shortener())
    eve = make_node("eve", swarm, policy=Parrot(f"{often} buy right", "buy wrong"), scorer=scorer, learner=None)
    for node in (eve, ada):
        node.act()
    result = ada.learn()
    taught = {text.text for one in result.from_peers for text in one.rollout.completions}
    assert taught == {f"{often} right", "buy wrong"}
    [row, *_] = [row for row in learned_rows(ada, result) if row["peer"]]
    assert (row["maker"], row["shortened"]) == ("eve", pytest.approx(4 / 81))
    assert {row["shortened"] for row in learned_rows(ada, result) if not row["peer"]} == {None}
    assert round_metrics(ada, result)["peers/shortened"] == pytest.approx(4 / 81)
    ada.save(tmp_path / "kept")
    again = make_node("ada", MemorySwarm(7), shortener=Shortener())
    again.load(tmp_path / "kept")
    assert again.shortener == ada.shortener
