"""`shoal eval --harness`: lm-eval and Inspect measure a model."""
