"""``manage.py idgen_tag``: make, change, pause and list tags."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from ...core.errors import IdgenError
from ...core.segment import MAX_ID
from ...db.tables import with_way_out
from ...models import LeafAlloc
from ...ops.doctor.skipping import all_tags
from ...ops.tags.change_log import record
from ...ops.tags.edits import change_tag, make_tag, pause_tag, resume_tag
from ...process.maps import current_settings
from ...process.tags import Tag, known_tag, source_of_tags

ACTIONS = {
    "create": "make a tag",
    "step": "change how many ids a process takes at a time, from its next fetch on",
    "pause": "give out no more ids of a tag, but for those that processes hold",
    "resume": "give out its ids again",
}


class Command(BaseCommand):
    help = "Make, change, pause and list tags, in all of their databases."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        by_name = {name: actions.add_parser(name, help=text) for name, text in ACTIONS.items()}
        for each in by_name.values():
            each.add_argument("tag", metavar="NAME")
        create = by_name["create"]
        create.add_argument("--step", type=int, help="default: default_step of the settings")
        create.add_argument("--description", default="")
        create.add_argument("--first", type=int, default=1, metavar="ID", help="its first id")
        by_name["step"].add_argument("step", type=int, metavar="STEP")
        actions.add_parser("list", help="show all tags")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            if options["action"] == "list":
                source_of_tags()  # raises, if a service has the tags
                for name in all_tags():
                    self.stdout.write(_shown(known_tag(name)))
            else:
                self._change(**options)
        except IdgenError as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            raise CommandError(with_way_out(error)) from error

    def _change(self, action: str, tag: str, **options: Any) -> None:
        step = options.get("step")
        if action == "create":
            step = current_settings().segments.default_step if step is None else step
            first = options["first"]
            if not 1 <= first <= MAX_ID:
                raise CommandError(f"--first must be an id of 1 to {MAX_ID}, not {first}.")
            description = _line(options["description"])
            found = make_tag(tag, step=step, description=description, max_id=first)
            record("idgen_tag", tag, "added", step=(None, step), max_id=(None, first))
        elif action == "step":
            before = known_tag(tag).first.step
            found = change_tag(tag, step=step)
            record("idgen_tag", tag, "changed", step=(before, step))
        else:
            found = pause_tag(tag) if action == "pause" else resume_tag(tag)
            record("idgen_tag", tag, f"{action}d")
        self.stdout.write(_shown(found))


def _line(description: str) -> str:
    try:
        LeafAlloc._meta.get_field("description").run_validators(description)
    except ValidationError as error:
        raise CommandError(f"--description {description!r}: {' '.join(error.messages)}") from error
    return description


def _shown(tag: Tag) -> str:
    state = ", paused" if tag.paused else ""
    return f"{tag.name}: next id {tag.max_id}, step {tag.first.step}{state}"
