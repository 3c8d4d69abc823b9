"""celery-batches as its documentation shows it: base64 in the message, up to 32 requests a task."""
