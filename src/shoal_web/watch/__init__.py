"""`shoal watch`: shows runs, archives, judges and swarms in a browser, and only reads. Strangers' texts leave here as
JSON and enter the page as text nodes; `serving.guard.POLICY` makes the browser refuse everything else."""
