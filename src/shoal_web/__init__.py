"""Pages in a browser: `shoal watch` shows runs and swarms, `shoal human` lets a person answer. `serving` is for both."""
