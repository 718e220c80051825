"""`shoal watch`: a page that shows runs, judges and live swarms in a browser.

    sources (folders, judges, swarms) -> server.py (JSON) + live.py (server-sent events) -> guard.py -> static/ (the
    page)

It only reads. Texts and names of strangers leave here as JSON strings and enter the page as text nodes; `guard.POLICY`
makes the browser refuse everything else.
"""
