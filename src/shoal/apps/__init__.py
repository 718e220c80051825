"""Programs on the core, which never imports them: the laboratory, the judge, the window and the page for people."""
