"""`shoal validate`: whether tasks and data sets can be learned at all, before anything is trained."""
