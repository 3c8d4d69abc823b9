"""The proof that the queue costs next to nothing: one script a question, run side by side with its peers."""
