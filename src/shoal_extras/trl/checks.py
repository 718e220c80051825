"""What a trainer and the settings of its node must be, so that nothing that either was told is ignored in silence."""

from typing import Any, Final

from transformers import PreTrainedTokenizerBase

from shoal.config.load import config_from_keywords
from shoal.config.names import from_keywords
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.membership.settings import check_network
from shoal.policy.loading import LanguageModel
from shoal.tasks.data.spec import keep_data
from shoal.tasks.suites import specs_of

UNREAD: Final = (
    *("use_vllm", "use_transformers_paged", "use_transformers_continuous_batching", "generation_kwargs"),
    *("top_k", "min_p", "chat_template_kwargs", "cast_lm_head_to_fp32"),
)
"""Settings of GRPOConfig, off by default, that shoal's decoder does not read. Not every TRL has all of them."""
SECTIONS: Final = {"seed", "tasks", "rewards", "selection", "network"}
"""Of shoal's settings, those that the trainer does not have."""


def check_trainer(trainer: Any, reward: Any) -> None:
    """Raises `UserError` for settings of the trainer that would have no effect here. `reward`: the one function that it
    must have."""
    args = trainer.args
    unread = [name for name in UNREAD if vars(args).get(name)]
    if args.repetition_penalty != 1.0:
        unread.append("repetition_penalty")
    if unread:
        raise UserError(f"shoal decodes by temperature and top_p alone: leave out {', '.join(unread)}")
    if not isinstance(trainer.processing_class, PreTrainedTokenizerBase):
        raise UserError("shoal's tasks are text: give the trainer a model with a tokenizer, not with a processor")
    if trainer.tools:
        raise UserError("shoal's questions are answered in one turn: leave out tools and environment_factory")
    if trainer.reward_funcs != [reward]:
        raise UserError(
            "shoal scores own and peers' answers alike: give your reward functions to the TRLNode "
            "(rewards=[short]), and the trainer none but node.hooks has"
        )
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise UserError("shoal's decoder needs all weights on each device: start several processes without sharding")


def check_stop(trainer: Any, lm: LanguageModel) -> None:
    """Raises `UserError` if TRL would mask answers that end as this model's do."""
    declared = lm.model.generation_config.eos_token_id
    ends = {lm.tokenizer.eos_token_id, *(declared if isinstance(declared, list) else [declared])}
    if trainer.args.mask_truncated_completions and not lm.stop_ids <= ends:
        raise UserError(
            "this model has no chat template, so its answers end with their line, which TRL takes for cut short: leave "
            "out mask_truncated_completions"
        )


def node_config(settings: dict[str, Any], network: bool) -> Config:
    """The configuration of keyword arguments, as `shoal.join` takes them. `network`: whether the node joins one. Raises
    `UserError` for a setting that is unknown, cannot be used, or is the trainer's."""
    settings = keep_data(settings)
    nested = from_keywords(settings)
    config = config_from_keywords(settings)
    theirs = sorted(set(nested) - SECTIONS - {"round"}) + sorted(set(nested.get("round", {})) - {"peers"})
    if theirs:
        raise UserError(
            f"'{theirs[0]}' is no setting of a trainer's node: models, decoding and learning are GRPOConfig's, and "
            "`peers` says how many groups of a batch are those of peers"
        )
    specs_of(config.tasks)  # a mistyped name is reported before a model is loaded
    if network:
        check_network(config)
    return config
