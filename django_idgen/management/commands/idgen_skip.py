"""``manage.py idgen_skip``: skip past ids that may be out, after a restore or a failover."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_idgen.core.clock import is_aware, unix_us
from django_idgen.core.errors import one_line, sentence
from django_idgen.ops.doctor.project import FAILURES, Project
from django_idgen.ops.doctor.skipping import (
    GeneratorSkip,
    TagSkip,
    all_tags,
    namespaces_of_others,
    raise_new_tags,
    skip_of_new_tags,
)
from django_idgen.ops.tags.edits import generator_in_redis
from django_idgen.process.tags import known_tag
from django_idgen.settings.config import (
    GeneratorSettings,
    SettingsError,
    TagGeneratorSettings,
    read_settings,
)

from .idgen_doctor import is_confirmed


class Command(BaseCommand):
    help = (
        "Skip past ids that may have been given out: after a database was restored to an earlier "
        "state, or another server took over that may have missed the last writes. By default tags "
        "skip as far as a failover would; generators open a new generation past every window that "
        "may have been lent. Shows first what it will do, and asks."
    )
    # It has to run in a project that they find errors in.
    requires_system_checks: list[str] = []  # noqa: RUF012

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tags", nargs="*", metavar="TAG", help="only these tags")
        parser.add_argument("--all", action="store_true", help="all tags, and those made later")
        far = parser.add_mutually_exclusive_group()
        far.add_argument("--by", type=int, metavar="N", help="this many ids further")
        far.add_argument("--to", type=int, metavar="N", help="the next id is N, or one above it")
        far.add_argument(
            "--past-table", action="store_true", help="past the highest id of the tag's tables"
        )
        far.add_argument(
            "--hours-ago",
            type=float,
            metavar="H",
            default=0.0,
            help=(
                "the age of the restored state, in hours: also skip twice what each tag uses in "
                "that time"
            ),
        )
        parser.add_argument(
            "--generators", nargs="*", metavar="ALIAS", help="these generators, or all of them"
        )
        parser.add_argument(
            "--until",
            metavar="DATETIME",
            help=(
                "the end of the time in which the other server may have lent worker ids (ISO "
                "8601, with its zone); now, if that is later"
            ),
        )
        parser.add_argument(
            "--newest",
            metavar="DATETIME",
            help="the time in the newest snowflake that you know, if it was ahead of now",
        )
        parser.add_argument("--dry-run", action="store_true", help="only show what it would do")
        parser.add_argument("--yes", action="store_true", help="don't ask")

    def handle(self, *_args: Any, **options: Any) -> None:
        _check(options)
        try:
            project = Project(read_settings())
        except SettingsError as error:
            raise CommandError(str(error)) from error
        try:
            self._skip(project, options)
        except FAILURES as error:
            raise CommandError(one_line(error)) from error

    def _skip(self, project: Project, options: dict[str, Any]) -> None:
        distance = {key: options[key] for key in ("by", "to", "past_table", "hours_ago")}
        tags = [TagSkip(project, tag, **distance) for tag in _tags(project, options)]
        times = {f"{name}_us": _time_us(name, options[name]) for name in ("until", "newest")}
        generators = [
            GeneratorSkip(project, entry, **times) for entry in _entries(project, options)
        ]
        skips: list[GeneratorSkip | TagSkip] = [*tags, *generators]
        for each in skips:
            self.stdout.write(each.describe())
        new_tags_by = _new_tags_by(project, tags, options) if options["all"] else 0
        if new_tags_by and not tags:
            self.stdout.write(
                f"no tag is there: new tags start {new_tags_by} further{_BY * (not options['by'])}"
            )
        if any(tag.skips for tag in tags) and not any(options[key] for key in _EXACT):
            self.stdout.write(_ESTIMATE)
        for name in namespaces_of_others(project) if options["generators"] == [] else ():
            self.stdout.write(self.style.WARNING(f"NOT skipped: {name}. {_ELSEWHERE}"))
        left = _own_tags(project).values() if options["all"] else ()
        for entry in left:
            self.stdout.write(self.style.WARNING(f"NOT skipped: {_by_hand(entry)}"))
        tags = [tag for tag in tags if tag.skips]
        if tags or new_tags_by or any(each.book for each in generators):
            self._ask_and_apply(tags, generators, options, new_tags_by)
        else:
            self.stdout.write("There is nothing to do.")
        if left and not options["dry_run"]:
            names = ", ".join(repr(entry.alias) for entry in left)
            raise CommandError(f"The ids of generator {names} were NOT skipped: see above.")

    def _ask_and_apply(
        self,
        tags: list[TagSkip],
        generators: list[GeneratorSkip],
        options: dict[str, Any],
        new_tags_by: int,
    ) -> None:
        self.stdout.write("Skipped ids are never given out. Processes keep the ids they hold.")
        if options["dry_run"]:
            self.stdout.write("Nothing was done: --dry-run.")
            return
        if not (options["yes"] or is_confirmed()):
            raise CommandError("Nothing was done.")
        self._apply(tags, generators, new_tags_by)

    def _apply(
        self, tags: list[TagSkip], generators: list[GeneratorSkip], new_tags_by: int
    ) -> None:
        failures = []
        # Generators first: their ids may repeat until then, and nothing else prevents it.
        skips: list[GeneratorSkip | TagSkip] = [*generators, *tags]
        for each in skips:
            try:
                self.stdout.write(each.apply())
            except FAILURES as error:
                failures.append(sentence(error))
        if new_tags_by:
            by = max((tag.after - tag.before for tag in tags), default=new_tags_by)
            for alias in raise_new_tags(by):
                self.stdout.write(f"database {alias!r}: new tags start {by} further")
        if failures:
            raise CommandError(f"{' '.join(failures)} The rest is done; run it again.")


_EXACT = ("by", "to", "past_table")
_ESTIMATE = (
    "This is an estimate from what the tags had used when they were stored. If a tag may have used "
    "more since (a first import), give --by N."
)
_ELSEWHERE = (
    "No generator of this project has it. If another project does, run this command there, too."
)
_BY = (
    ", as far as a failover would skip. How many ids the lost tags had is not known: if it may be "
    "more, give --by N"
)


def _new_tags_by(project: Project, tags: list[TagSkip], options: dict[str, Any]) -> int:
    """How much further tags that are made later have to start: the loss may have taken some."""
    if tags:
        return max(0, *(tag.after - tag.before for tag in tags))
    if options["to"] is not None or options["past_table"]:
        return 0
    return skip_of_new_tags(project, options["by"])


def _check(options: dict[str, Any]) -> None:
    if not options["tags"] and not options["all"] and options["generators"] is None:
        raise CommandError("Name tags or give --all, or give --generators, or both.")
    if options["tags"] and options["all"]:
        raise CommandError("Either name tags, or give --all.")
    for name in ("by", "to"):
        value = options[name]
        if value is not None and not 1 <= value < 2**63:
            raise CommandError(f"--{name} must be 1 to 2**63-1, not {value}.")
    if not 0 <= options["hours_ago"] <= 1e6:
        raise CommandError(f"--hours-ago must be 0 to 1000000, not {options['hours_ago']}.")
    for name in ("until", "newest"):
        if options[name] and options["generators"] is None:
            raise CommandError(f"--{name} is for --generators; for tags see --hours-ago.")


def _tags(project: Project, options: dict[str, Any]) -> list[str]:
    if options["all"]:
        # What is left out is named: see _by_hand.
        return [tag for tag in all_tags() if generator_in_redis(tag) is None]
    own = _own_tags(project)
    for tag in options["tags"]:
        # Also if the source of SEGMENTS has a row of that name, whose ids may be granted already.
        if tag in own:
            raise CommandError(_by_hand(own[tag]))
        known_tag(tag)  # raises, if it is not there
    return list(options["tags"])


def _own_tags(project: Project) -> dict[str, TagGeneratorSettings]:
    """The generators that keep a tag in a source of their own, by the tag."""
    return {entry.tag: entry for entry in project.settings.tag_generators.values()}


def _entries(project: Project, options: dict[str, Any]) -> list[GeneratorSettings]:
    names, known = options["generators"], project.settings.generators
    for name in names or ():
        if name in project.settings.tag_generators:
            raise CommandError(_by_hand(project.settings.tag_generators[name]))
        if name not in known:
            raise CommandError(
                f"There is no generator {name!r}. Known: {', '.join(map(repr, known))}."
            )
    if names is None:
        return []
    return [entry for alias, entry in known.items() if not names or alias in names]


def _by_hand(entry: TagGeneratorSettings) -> str:
    source = entry.segments.source
    pooled = (
        f" Then delete what it has in the Redis of CACHES[{source.options.get('alias')!r}]: the "
        f"keys that match 'django_idgen:pool*:{entry.tag}'."
    )
    return (
        f"Generator {entry.alias!r} keeps its tag in a source of its own, and idgen_skip "
        f"only reaches the source of IDGEN['SEGMENTS']. Stop its processes, then raise the mark "
        f"by hand: max_id of the tag's row in each of its databases, or the first number in its "
        f"file."
        f"{pooled * source.load().is_pool}"
    )


def _time_us(name: str, text: str | None) -> int | None:
    if not text:
        return None
    with suppress(ValueError):
        time = datetime.fromisoformat(text.replace(" UTC", "Z"))  # or as our commands print it
        if is_aware(time):
            return unix_us(time)
    raise CommandError(
        f"--{name} must be a time such as 2026-05-01T12:00:00Z, with its zone, not {text!r}."
    )
