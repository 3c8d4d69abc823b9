"""taskiq on a Redis list, with its Redis result backend: base64 in the message, as with Celery."""
