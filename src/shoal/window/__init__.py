"""The window: a page that shows runs, in a browser, while they go and afterwards.

    sources (folders, later judges) -> api.py (JSON) + live.py (server-sent events) -> guard.py -> static/ (the page)

It only reads. Texts and names of strangers leave here as JSON strings and enter the page as text nodes; the page's
policy (`guard.POLICY`) has the browser refuse everything else.
"""
