"""An app whose serializers stand with its models: they are there before any ready()."""
