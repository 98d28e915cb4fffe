"""All migrations of django_idgen, and a made-up one."""

from django_idgen import migrations

__path__ = [*migrations.__path__, *__path__]
