"""Jobs over HTTP: what is asked of a scheduler, and what a worker answers."""
