"""One module a question; each is a script of its own: ``python -m benchmarks.questions.drain``."""
