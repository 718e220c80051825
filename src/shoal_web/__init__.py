"""Pages in a browser: `shoal watch` shows runs and swarms, in `shoal human` a person answers. `serving` is for both."""
