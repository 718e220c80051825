"""Decoders: what draws the tokens of answers. `base` has the protocol; `own` is the one that shoal has itself."""
