"""Worker ids lent by real database servers."""
