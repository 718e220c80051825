"""`shoal watch`: a page that shows runs, judges and live swarms in a browser. It only reads.

Texts and names of strangers leave here as JSON strings and enter the page as text nodes; `serving.guard.POLICY` makes
the browser refuse everything else.
"""
