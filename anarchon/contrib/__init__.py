"""anarchon inside the frameworks: each part is imported by those who use it, with its framework."""
