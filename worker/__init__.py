"""The Celery side of Tidegate: tickets in, micro-batches to Triton, results into the ledger."""
