"""Questions about what peers answered: critique it, then decide.

A question of a stage quotes rollouts of the stage before it by their hashes. Whoever has admitted these rollouts makes
the question again and scores its answers; whoever has not refuses it. See docs/guides/stages.md.
"""
