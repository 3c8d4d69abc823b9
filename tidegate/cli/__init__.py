"""The command ``tidegate``: what a person runs. Each command is a few lines over a module that does the work."""
