"""Other ways to do the same, as their own documentation shows them; each runs in a virtual environment of its own."""
