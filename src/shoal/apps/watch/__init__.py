"""The window: a page that shows runs, judges and live swarms in a browser.

    sources (folders, judges, swarms) -> api.py (JSON) + live.py (server-sent events) -> guard.py -> static/ (the page)

It only reads. Texts and names of strangers leave here as JSON strings and enter the page as text nodes; the page's
policy (`guard.POLICY`) has the browser refuse everything else.
"""
