"""What an answer says: where in a completion it stands, what kind it has, and whether it is right.

    score("number", "Half of 24 is **12**.", "12")         # 1.0
    read("choice", "B. Option A is too small.").shown       # "B"

One reader serves every data set, `shoal validate`, the page and the rewards. Strangers write the completions: reading
takes linear time and is bounded in size.
"""

from shoal.answers.scores import SCORES, SCORES_VERSION, Reading, fits, kind_of, read, score

__all__ = ["SCORES", "SCORES_VERSION", "Reading", "fits", "kind_of", "read", "score"]
