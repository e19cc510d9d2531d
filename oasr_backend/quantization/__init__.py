"""Which matrix products run on whole numbers, and their weights."""
