"""Rewards that models give: reward models, and language models that are asked whether an answer is right."""
