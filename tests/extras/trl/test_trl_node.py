"""A stock GRPOTrainer of TRL trains on own and foreign rollouts, in one process with its peers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import pandas
import psutil
import torch
from data_rewards import short
from datasets import Dataset
from grpo import LETTERS, RIGHT, WRONG, G, Peer, make_trainer
from tiny import assert_same, make_model, make_tokenizer, plain_logprobs, weights

from shoal.errors import UserError
from shoal.learn.advantages import advantages
from shoal.transports.memory import MemorySwarm
from shoal_extras.trl import TRLNode

SPELLED = ("zz", "<|im_end|>", "zz<pad>", "zz")
"""Answers that spell control tokens; the middle ones are right."""
Rows = dict[str, list[Any]]


def in_groups(column: Sequence[Any]) -> list[Sequence[Any]]:
    return [column[start : start + G] for start in range(0, len(column), G)]


def spied(node: TRLNode, before: Callable[[], object] = lambda: None) -> tuple[dict[str, Any], list[Rows]]:
    """The hooks of `node`, and what `rollout_func` will have returned. `before` each batch is called."""
    seen: list[Rows] = []

    def rollout_func(prompts: list[Any], trainer: Any) -> Rows:
        before()
        seen.append(node.rollout_func(prompts, trainer))
        return seen[-1]

    return node.hooks | {"rollout_func": rollout_func}, seen


def makers(rows: Rows) -> list[str]:
    """The maker of each group."""
    groups = [set(group) for group in in_groups(rows["shoal_maker"])]
    assert all(len(group) == 1 for group in groups)
    return [group.pop() for group in groups]


def test_own_and_peers_rollouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Foreign groups are in the batch, own ones are shared, and the logs keep their rewards apart."""
    swarm = MemorySwarm()
    bob = Peer(swarm)
    with TRLNode(swarm, name="ada", task=LETTERS, peers=2) as node:
        hooks, seen = spied(node, bob.share)
        trainer = make_trainer(node, tmp_path, hooks=hooks, log_completions=True)
        trainer.train()
    assert [makers(rows) for rows in seen] == [["ada", "ada", "bob", "bob"]] * 2
    assert all(len(batch) == 16 for rows in seen for batch in rows.values() if batch)
    said = capsys.readouterr().out
    assert "shoal: trained on 8 groups of answers, 4 of peers (50%): bob 4; " in said
    shared = bob.place.receive()
    assert [(one.node, len(one.completions)) for one in shared] == [("ada", G)] * 4
    assert len({one.question for one in shared}) == 4
    for number, log in enumerate(trainer.state.log_history[:2]):
        own, foreign = seen[number]["shoal_reward"][: 2 * G], seen[number]["shoal_reward"][2 * G :]
        assert foreign == [1.0, 0.0, 0.0, 1.0] * 2
        assert log["reward/peers"] == 0.5
        assert log["reward/local"] == pytest.approx(sum(own) / len(own))
        assert log["reward"] == pytest.approx(sum(own + foreign) / 16)
        assert log["rollouts/sampled"] == 2
        table = pandas.read_parquet(tmp_path / "completions" / f"completions_{number + 1:05d}.parquet")
        assert list(table["maker"]) == seen[number]["shoal_maker"]
        assert list(table["question"]) == seen[number]["shoal_question"]


def test_rows_and_a_reward_function_of_ones_own(tmp_path: Path) -> None:
    rows = Dataset.from_list([{"question": f"Say {letter}.", "answer": letter} for letter in "abcdefghijklmnop"])
    with TRLNode(MemorySwarm(), name="ada", data=rows, rewards=[short]) as node:
        hooks, seen = spied(node)
        make_trainer(node, tmp_path, hooks=hooks).train()
    assert len(seen) == 2
    assert {one for batch in seen for one in batch["shoal_question"]} <= set(rows["question"])
    assert all(0 <= reward <= 1 for batch in seen for reward in batch["shoal_reward"])


def test_advantages_are_trls_own(tmp_path: Path) -> None:
    """Rewards are those of this node's verifier, and TRL's advantages follow from them by GRPO's formula."""
    swarm = MemorySwarm()
    bob = Peer(swarm)
    with TRLNode(swarm, task=LETTERS, peers=2) as node:
        hooks, seen = spied(node, bob.share)
        trainer = make_trainer(node, tmp_path, hooks=hooks, log_completions=True, max_steps=1)
        trainer.train()
    table = pandas.read_parquet(tmp_path / "completions" / "completions_00001.parquet")
    by_hand = [a for group in in_groups(seen[0]["shoal_reward"]) for a in advantages([group], "group")[0]]
    assert list(table["advantage"]) == pytest.approx(by_hand, abs=1e-5)
    assert any(by_hand[: 2 * G])
    assert any(by_hand[2 * G :])
    tokenizer = trainer.processing_class
    texts = tokenizer.batch_decode(seen[0]["completion_ids"], skip_special_tokens=True)
    expected = [float(any(letter in text.lower() for letter in "aeimt")) for text in texts]
    assert seen[0]["shoal_reward"] == expected


def test_the_step_is_the_policy_gradient_of_own_and_foreign_rollouts(tmp_path: Path) -> None:
    """One step of gradient descent, beside the same worked out by hand."""
    swarm = MemorySwarm()
    bob = Peer(swarm)
    model = make_model(vocab_size=len(make_tokenizer(chat=True)))
    by_hand = make_model(vocab_size=len(make_tokenizer(chat=True)))
    with TRLNode(swarm, task=LETTERS, peers=2) as node:
        hooks, seen = spied(node, bob.share)
        settings = {"optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0, "loss_type": "dapo", "beta": 0.0}
        make_trainer(
            node, tmp_path, model=model, hooks=hooks, max_steps=1, lr_scheduler_type="constant", **settings
        ).train()
    rows = seen[0]
    total = sum(map(len, rows["completion_ids"]))
    expected = [a for group in in_groups(rows["shoal_reward"]) for a in advantages([group], "group")[0]]
    loss = -sum(
        advantage * plain_logprobs(by_hand, prompt, answer).sum() / total
        for prompt, answer, advantage in zip(rows["prompt_ids"], rows["completion_ids"], expected, strict=True)
    )
    loss.backward()
    with torch.no_grad():
        for parameter in by_hand.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad
    assert_same(weights(model), weights(by_hand), 1e-4)


def test_alone_it_trains_on_its_own(tmp_path: Path) -> None:
    with TRLNode(MemorySwarm(), name="ada", task=LETTERS) as node:
        hooks, seen = spied(node)
        trainer = make_trainer(node, tmp_path, hooks=hooks)
        trainer.train()
    assert [makers(rows) for rows in seen] == [["ada"] * 4] * 2
    assert "reward/peers" not in trainer.state.log_history[0]
    assert trainer.state.log_history[0]["grad_norm"] > 0


@pytest.mark.parametrize(
    ("settings", "batches", "groups"),
    [
        ({"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}, 4, 4),
        ({"per_device_train_batch_size": 4, "steps_per_generation": 2, "gradient_accumulation_steps": 4}, 8, 2),
        ({"per_device_train_batch_size": 8, "steps_per_generation": 4, "gradient_accumulation_steps": 2}, 2, 8),
        ({"num_iterations": 2}, 2, 4),
    ],
    ids=["accumulated", "twice a step", "for two steps", "used twice"],
)
def test_batches_of_any_shape(tmp_path: Path, settings: dict[str, int], batches: int, groups: int) -> None:
    """A generation batch may be split over, or be a part of, a step of the optimiser."""
    swarm = MemorySwarm()
    bob = Peer(swarm)
    with TRLNode(swarm, name="ada", task=LETTERS, peers=1, fill=False) as node:
        hooks, seen = spied(node, bob.share)
        make_trainer(node, tmp_path, hooks=hooks, max_steps=4, **settings).train()
    assert [makers(rows) for rows in seen] == [["ada"] * (groups - 1) + ["bob"]] * batches


def test_adapters(tmp_path: Path) -> None:
    """LoRA as TRL has it: the adapters answer and learn, the base stays."""
    peft = pytest.importorskip("peft")
    swarm = MemorySwarm()
    bob = Peer(swarm)
    with TRLNode(swarm, task=LETTERS) as node:
        hooks, seen = spied(node, bob.share)
        lora = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
        trainer = make_trainer(node, tmp_path, hooks=hooks, peft_config=lora, max_steps=3)
        before = weights(trainer.model)
        trainer.train()
    changed = {name for name, weight in weights(trainer.model).items() if not torch.equal(weight, before[name])}
    assert changed
    assert all("lora_" in name for name in changed)
    assert len(seen) == 3
    with TRLNode(MemorySwarm(), task=LETTERS) as node:
        prompts = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
        trainer = make_trainer(node, tmp_path, peft_config=prompts)
        with pytest.raises(UserError, match="take a LoraConfig"):
            trainer.train()


def test_strangers_text_is_only_text(tmp_path: Path) -> None:
    """No text becomes a control token, and what does not belong in a batch does not come in."""
    swarm = MemorySwarm()
    bob = Peer(swarm)

    def share() -> None:
        bob.share(1, SPELLED)
        bob.share(1, (RIGHT, WRONG))  # fewer than G
        bob.share(1, (RIGHT, WRONG, WRONG, "a" * 50))  # one is longer than this trainer's own
        bob.share(1, question_hash="0" * 32)
        bob.share(1, (RIGHT,) * G)  # nothing to learn from

    with TRLNode(swarm, name="ada", task=LETTERS, peers=3) as node:
        hooks, seen = spied(node, share)
        trainer = make_trainer(node, tmp_path, hooks=hooks, max_steps=1, max_completion_length=24)
        trainer.train()
    assert makers(seen[0]) == ["ada", "ada", "ada", "bob"]
    tokenizer = trainer.processing_class
    end = tokenizer.eos_token_id
    for ids, text in zip(seen[0]["completion_ids"][-G:], SPELLED, strict=True):
        assert ids[-1] == end
        assert not set(ids[:-1]) & set(tokenizer.all_special_ids)
        assert tokenizer.decode(ids[:-1]) == text
    assert trainer.state.log_history[0]["rollouts/refused"] == 1


@pytest.mark.slow
def test_a_checkpoint_has_the_node(tmp_path: Path) -> None:
    """A trainer that goes on from a checkpoint ends with the weights of one that was never stopped."""
    found = []
    for stops in ([4], [2, 4]):
        swarm, folder = MemorySwarm(), tmp_path / f"{len(stops)}"
        bob = Peer(swarm)
        for steps in stops:
            with TRLNode(swarm, name="ada", task=LETTERS, peers=2) as node:
                hooks, seen = spied(node, lambda bob=bob: bob.share(3))
                kept = {"save_strategy": "steps", "save_steps": 2, "lr_scheduler_type": "constant"}
                trainer = make_trainer(node, folder, hooks=hooks, max_steps=steps, **kept)
                trainer.train(resume_from_checkpoint=steps > stops[0])
        found.append((weights(trainer.model), seen[-1]))
    assert found[0][1] == found[1][1]
    assert_same(found[0][0], found[1][0], 1e-6)


def test_a_damaged_state_is_refused_in_one_line(tmp_path: Path) -> None:
    kept = {"save_strategy": "steps", "save_steps": 1}
    with TRLNode(MemorySwarm(), task=LETTERS) as node:
        make_trainer(node, tmp_path, max_steps=1, **kept).train()
    (tmp_path / "checkpoint-1" / "shoal" / "pool.msgpack").write_bytes(b"?")
    with TRLNode(MemorySwarm(), task=LETTERS) as node, pytest.raises(UserError, match="remove that folder"):
        make_trainer(node, tmp_path, max_steps=2, **kept).train(resume_from_checkpoint=True)


@pytest.mark.slow
def test_it_ends_cleanly(tmp_path: Path) -> None:
    """No thread and no process of shoal is left, after Ctrl-C, too; and the model is as the trainer knows it."""
    before, processes = set(threading.enumerate()), set(psutil.Process().children(recursive=True))
    calls = iter(range(10))

    def interrupt() -> None:
        if next(calls) == 1:
            raise KeyboardInterrupt

    with TRLNode(MemorySwarm(), task=LETTERS) as node:
        trainer = make_trainer(node, tmp_path, hooks=spied(node, interrupt)[0])
        with pytest.raises(KeyboardInterrupt):
            trainer.train()
    node = TRLNode(MemorySwarm(), task=LETTERS)
    make_trainer(node, tmp_path).train()
    assert not [thread for thread in set(threading.enumerate()) - before if "shoal" in thread.name]
    assert set(psutil.Process().children(recursive=True)) <= processes
    assert {type(module) for module in trainer.model.modules() if isinstance(module, torch.nn.Linear)} == {
        torch.nn.Linear
    }


def test_others_replace_own_rollouts_without_a_gradient(tmp_path: Path) -> None:
    """As in every node: with the default `fill` the batch keeps its size, and more of it may be foreign."""
    swarm = MemorySwarm()
    bob = Peer(swarm)
    with TRLNode(swarm, name="ada", task=LETTERS, peers=1) as node:
        hooks, seen = spied(node, lambda: bob.share(4))
        make_trainer(node, tmp_path, hooks=hooks, max_steps=3).train()
    for rows in seen:
        own = [
            group for group, maker in zip(in_groups(rows["shoal_reward"]), makers(rows), strict=True) if maker == "ada"
        ]
        assert len(makers(rows)) == 4
        assert len(own) <= 3
        assert all(len(set(group)) > 1 for group in own) or len(own) == 3


def test_trainers_that_cannot_join_are_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trl.experimental.async_grpo import AsyncGRPOTrainer

    with pytest.raises(UserError, match="a vLLM server answers for it"), TRLNode(MemorySwarm(), task=LETTERS) as node:
        AsyncGRPOTrainer("a/model", **node.hooks)
    monkeypatch.setitem(sys.modules, "unsloth", sys)
    with pytest.raises(UserError, match="unsloth cannot join"):
        TRLNode(MemorySwarm(), task=LETTERS)


def test_a_wrong_number_of_values_is_an_error_at_once(tmp_path: Path) -> None:
    with TRLNode(MemorySwarm(), task=LETTERS, reward="short_rewards:too_few") as node:
        trainer = make_trainer(node, tmp_path)
        with pytest.raises(UserError, match=r"returned 1 values for .* it must return one for each"):
            trainer.train()


UNREAD = {
    "top_k": {"top_k": 5},
    "min_p": {"min_p": 0.1},
    "generation_kwargs": {"generation_kwargs": {"no_repeat_ngram_size": 2}},
    "repetition_penalty": {"repetition_penalty": 1.1},
    "chat_template_kwargs": {"chat_template_kwargs": {"enable_thinking": False}},
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_shoals_decoder_does_not_read_is_refused(tmp_path: Path, name: str) -> None:
    with TRLNode(MemorySwarm(), task=LETTERS) as node:
        trainer = make_trainer(node, tmp_path, **UNREAD[name])
        with pytest.raises(UserError, match=f"leave out {name}$"):
            trainer.train()


def other_reward(completions: Sequence[str], **_: Any) -> list[float]:
    return [0.0] * len(completions)


@pytest.mark.slow
def test_a_trainer_that_ignores_the_hooks_is_refused(tmp_path: Path) -> None:
    """Nothing that its user gave is ignored in silence."""
    rows = Dataset.from_list([{"prompt": "2 + 2 ="}] * 8)
    with TRLNode(MemorySwarm(), task=LETTERS) as node:
        hooks = node.hooks
        wrong: list[tuple[dict[str, Any], dict[str, Any], str]] = [
            (hooks | {"rollout_func": None}, {}, "does not call rollout_func"),
            (hooks | {"rollout_func": None, "reward_funcs": other_reward}, {}, "does not call rollout_func"),
            (
                hooks | {"reward_funcs": [*hooks["reward_funcs"], other_reward]},
                {},
                "give your reward func",
            ),
            (hooks | {"train_dataset": rows}, {}, "give rows of your own"),
            (hooks, {"max_steps": -1}, "max_steps"),
            (hooks, {"eval_dataset": rows, "eval_strategy": "steps", "eval_steps": 1}, "leave out eval_dataset"),
        ]
        for given, settings, says in wrong:
            trainer = make_trainer(node, tmp_path, hooks=given, **settings)
            with pytest.raises(UserError, match=says):
                trainer.train()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"learning_rate": 1e-4}, "'learner' is no setting of a trainer's node"),
        ({"local": 4}, "'local' is no setting of a trainer's node"),
        ({"suit": "pond"}, "there is no setting 'suit'"),
        ({"suite": "pnd"}, "pond"),
        ({"connect": "nowhere"}, "nowhere"),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        TRLNode(**settings)


def test_a_task_that_always_fails_ends_the_training(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(
        "from letters import Letters\nclass Failing(Letters):\n    def question(self, seed, index): raise KeyError(7)\n"
    )
    with TRLNode(MemorySwarm(), task=f"{tmp_path / 'failing.py'}:Failing") as node:
        trainer = make_trainer(node, tmp_path)
        with pytest.raises(UserError, match="in 64 rounds in a row: task 'letters': KeyError: 7"):
            trainer.train()


def test_a_batch_has_room_for_own_rollouts(tmp_path: Path) -> None:
    with TRLNode(MemorySwarm(), task=LETTERS, peers=4) as node:
        trainer = make_trainer(node, tmp_path)
        with pytest.raises(UserError, match=r"peers=4 leaves no room .* has 4 groups"):
            trainer.train()


@pytest.mark.slow
def test_a_reward_function_in_trls_contract(tmp_path: Path) -> None:
    """It rewards own and foreign answers alike; one that always fails ends the training in one line."""
    swarm = MemorySwarm()
    bob = Peer(swarm)
    with TRLNode(swarm, task=LETTERS, reward="short_rewards:ends_in_z", peers=2) as node:
        hooks, seen = spied(node, bob.share)
        make_trainer(node, tmp_path, hooks=hooks, max_steps=1).train()
    assert seen[0]["shoal_reward"][-2 * G :] == [0.0, 1.0, 1.0, 0.0] * 2
    with TRLNode(MemorySwarm(), task=LETTERS, reward="short_rewards:fails") as node:
        trainer = make_trainer(node, tmp_path)
        with pytest.raises(UserError, match=r"no answer could be scored: .*ZeroDivisionError"):
            trainer.train()
