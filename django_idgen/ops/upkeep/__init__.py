"""What a scheduler does for all processes: renewal, preloading, pruning."""
