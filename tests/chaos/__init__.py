"""The proof that nothing accepted is lost and nothing answered twice: a real stack, clients, and faults by a seed."""
