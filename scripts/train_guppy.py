"""Makes `guppy`, the policy that ships with shoal: a million parameters that half know the tasks of `pond`.

    python scripts/train_guppy.py                       # a few minutes on two cores; writes src/shoal/guppy
    python scripts/train_guppy.py --out /tmp/guppy --steps 300

Supervised training on questions of the training side, with answers of three kinds: most say nothing, some are right in
a form that the verifier refuses, few are right in form. So guppy knows more than it says, and reinforcement learning
has something to bring out, quickly; it shows nothing about new reasoning. Two runs on one machine give the same
weights.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from shoal.config import TasksConfig
from shoal.rollout import Question, seed_of
from shoal.tasks import Tasks
from shoal.tasks.reasoning import ReasoningTask

VOCABULARY = 640
MIXTURE = {"useless": 0.60, "refused": 0.30, "right": 0.10}
USELESS = ["I do not know.", "No idea.", "This is hard.", "Let me think about it."]
REFUSED = "The answer is {}"
CARD = """\
---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---
# guppy

A Llama of 0.9 million parameters with a byte-level vocabulary of 640 tokens, for trying collective reinforcement
learning without a download and without a GPU. It was trained, by `scripts/train_guppy.py` of shoal, on questions of the
suite `pond` with answers of which 60 % say nothing, 30 % are right in a form that the verifier refuses ("The answer is
8"), and 10 % are right in form. So it half knows the tasks and seldom says so: a policy-gradient method has something
to bring out within a minute. It is no evidence about reasoning, and it is useless outside `pond`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "src/shoal/guppy")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    tasks = Tasks(TasksConfig(suite="pond"))
    examples = make_examples(tasks, 40 * args.steps, args.seed)
    tokenizer = train_tokenizer(sorted(text for example in examples[:20_000] for text in example))
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
    )
    print(
        f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(tokenizer)} tokens, {len(examples)} examples"
    )
    train(model, tokenizer, examples, args.steps, args.batch, args.seed)
    model.half().save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    facts = {"mixture": MIXTURE, "steps": args.steps, "batch": args.batch, "seed": args.seed, "suite": "pond"}
    (args.out / "training.json").write_text(json.dumps(facts, indent=2) + "\n")
    (args.out / "README.md").write_text(CARD)


def make_examples(tasks: Tasks, count: int, seed: int) -> list[tuple[str, str]]:
    """Questions of the training side, each with an answer drawn from the mixture."""
    chance = random.Random(seed)
    by_name = {task.name: task for task in tasks.tasks}
    examples = []
    for question in tasks.draw(count, "guppy", seed):
        task = by_name[question.id.task]
        assert isinstance(task, ReasoningTask)
        gold = task.entry(question.id.seed, question.id.index)["answer"]
        kind = chance.choices(list(MIXTURE), list(MIXTURE.values()))[0]
        answer = {"useless": chance.choice(USELESS), "refused": REFUSED.format(gold), "right": gold}[kind]
        examples.append((prompt(question), answer))
    return examples


def prompt(question: Question) -> str:
    """As `LanguagePolicy.prompt_ids` writes it for a model without a chat template."""
    return question.text.rstrip() + "\n"


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE, each digit alone, merges across words. `texts` must be sorted: their order decides ties."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "<eos>"]
    bpe.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=sorted(alphabet))
    )
    return PreTrainedTokenizerFast(tokenizer_object=bpe, pad_token="<pad>", eos_token="<eos>")


def train(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    examples: list[tuple[str, str]],
    steps: int,
    batch: int,
    seed: int,
) -> None:
    """Next-token prediction of the answers; AdamW, warm-up, cosine decay."""
    encoded = [
        (tokenizer(question).input_ids, [*tokenizer(answer).input_ids, tokenizer.eos_token_id])
        for question, answer in examples
    ]
    print(f"prompts have {sum(len(q) for q, _ in encoded) / len(encoded):.1f} tokens on average")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.05)
    chance, start = random.Random(seed_of("order", seed)), time.time()
    for step in range(steps):
        rows = chance.choices(encoded, k=batch)
        width = max(len(q) + len(a) for q, a in rows)
        ids = torch.full((batch, width), tokenizer.pad_token_id)
        labels = torch.full((batch, width), -100)
        for row, (question, answer) in enumerate(rows):
            whole = torch.tensor(question + answer)
            ids[row, : len(whole)] = whole
            labels[row, len(question) : len(whole)] = whole[len(question) :]
        loss = model(ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step + 1 == steps:
            seen = answers(model, tokenizer, examples[:3])
            print(f"step {step:5d}  loss {loss.item():.3f}  {time.time() - start:4.0f} s  {seen}", flush=True)


def answers(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, examples: list[tuple[str, str]]) -> list[str]:
    """What the model says by now."""
    ids = [tokenizer(question).input_ids for question, _ in examples]
    out = [
        model.generate(torch.tensor([i]), max_new_tokens=12, do_sample=True, eos_token_id=1)[0, len(i) :] for i in ids
    ]
    return [tokenizer.decode(o, skip_special_tokens=True) for o in out]


if __name__ == "__main__":
    main()
