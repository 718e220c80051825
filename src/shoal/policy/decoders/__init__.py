"""Decoders: what draws the tokens of answers. `base` has the protocol; `own` and `vllm` are the ones that shoal has."""
