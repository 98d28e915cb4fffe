"""Template backends. ``django.DjangoTemplates`` writes ids without thousand separators."""
