"""What grants segments of tags: a source a module. Imports core, settings and db."""
