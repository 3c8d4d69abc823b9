"""The HTTP side of Tidegate: takes jobs in, tells what became of them."""
