"""The pages of worker ids: who holds which, as rows and as a map, and freeing one by hand."""
