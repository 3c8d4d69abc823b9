"""What ``tidegate doctor`` looks at: this machine, Redis, the model server and the ports, each for itself.

A look gives findings, and never raises for what it finds. What it says of Redis follows from Redis's own facts alone,
so that a worker may judge its Redis by the same rules.
"""
