"""Stands in for verifiers 0.4 where it is not installed: what shoal calls of it, and nothing else.

Its dependencies (openai below 3, and some forty packages) do not fit constraints.txt. With the real package the same
tests run on that.
"""
