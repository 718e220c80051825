"""Questions with pictures, drawn from the question's identity: the same pixels on every machine."""
