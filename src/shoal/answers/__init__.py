"""What an answer says: where in a completion it stands, what kind it has, and whether it is right.

    score("number", "Half of 24 is **12**.", "12")         # 1.0
    score("choice", "B. Option A is too small.", "B")       # 1.0

One reader serves every data set. Strangers write the completions: reading takes linear time and is bounded in size.
"""

from shoal.answers.scores import SCORES, SCORES_VERSION, fits, kind_of, read, score

__all__ = ["SCORES", "SCORES_VERSION", "fits", "kind_of", "read", "score"]
