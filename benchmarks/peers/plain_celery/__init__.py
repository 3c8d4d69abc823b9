"""Celery as tutorials use it for images: a task an image, base64 in the message, results in Redis."""
