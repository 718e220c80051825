"""`shoal probe`: finds out how a model is best asked, before it is trained."""
