"""Results on disk: written whole or not at all, read tolerantly, seen as one tidy frame."""
