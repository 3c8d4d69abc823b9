"""Ray Serve's asynchronous inference: a task consumer on Celery and Redis behind an HTTP ingress."""
