"""What a benchmark puts in the place of the parts that it does not ask about."""
