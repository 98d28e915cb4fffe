"""Segments: the fetch from a database, and how a process walks what it was given."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

SEGMENT = "django_idgen/core/segment.py"
PARTS = "django_idgen/core/segment_generator.py"
TAGS = "django_idgen/core/segment_allocator.py"
SERVER = "django_idgen/sources/server.py"
SEEN = "tests/sources/test_tables_seen.py"
SEVERAL = "django_idgen/contrib/sharding/source.py"
GROWTH = "django_idgen/contrib/sharding/growth.py"
HTTP = "django_idgen/sources/http.py"
GENERATOR = "tests/core/test_segment_generator.py"
FIRST_USE = "tests/db/test_connection.py::test_two_threads_at_first_use_share_one"
AHEAD = "tests/core/test_segment_ahead.py"
IDLE = "tests/core/test_segment_idle.py"
FETCH = "tests/sources/test_server_source.py"
CONTRACT = "tests/contracts/test_server.py::TestServerSource"
FAILOVER = "tests/faults/failover/test_failover.py"
SHARED = "tests/contrib/sharding/test_several.py"
GROWN = "tests/contrib/sharding/test_growth.py"

BREAKS = (
    # --- other programs' tables ----------------------------------------------------
    Break(
        "migrate takes over a table whose columns can't hold ours",
        "I1",
        "django_idgen/db/tables.py",
        'if columns and model.__name__ == "LeafAlloc":',
        "if False:",
        (
            "tests/contrib/test_leaf_table.py::test_other_types_are_refused_before_anything_is_changed",
        ),
    ),
    Break(
        "a tag of TinyID's is taken over without all of its databases",
        "I1",
        "django_idgen/contrib/adopt/takeover.py",
        "if places != [",
        "if False and places != [",
        ("tests/contrib/adopt/test_takeover.py::test_tinyids_own_sample",),
    ),
    # --- the fetch ---------------------------------------------------------------
    Break(
        "a fetch moves the row by less than it grants",
        "I1",
        SERVER,
        "    ids = _length(demand)\n    length = ids * ",
        "    ids = _length(demand) - 1\n    length = ids * ",
        (f"{CONTRACT}::test_a_new_tag_starts_at_one",),
    ),
    Break(
        "a fetch reads the row before it has moved it",
        "I1, hazard 44",
        SERVER,
        "            return _Taken()\n        shard = ",
        '            return _Taken()\n        row["max_id"] -= row["step"] * row["delta"]\n'
        "        shard = ",
        (f"{CONTRACT}::test_a_new_tag_starts_at_one",),
    ),
    Break(
        "a fetch is read by the ORM, which a query cache may answer",
        "I1, hazard 98",
        "django_idgen/db/rows.py",
        "return next(_found(compiler), None) if changed else None",
        "return next(iter(chosen), None) if changed else None",
        (
            "tests/sources/test_query_caches.py::test_no_grant_comes_out_of_a_cache[2-mariadb-database-cachalot]",
        ),
    ),
    Break(
        "what was granted is not told to a service",
        "hazard 100",
        HTTP,
        'body["granted"] = str(demand.granted)',
        "pass",
        ("tests/contracts/test_http.py::TestHttpSource::test_a_floor_at_loaded_rows_is_no_loss",),
    ),
    Break(
        "a fetch does not lock the row in the careful way",
        "I1, hazard 44",
        SERVER,
        "read_first(self._rows(tag).select_for_update())\n        if row is not None and",
        "read_first(self._rows(tag))\n        if row is not None and",
        (f"{CONTRACT}::test_segments_are_disjoint_under_many_fetchers",),
    ),
    Break(
        "the step is not the row's",
        "hazard 24",
        SERVER,
        'base = row["max_id"] - demand.length(row["step"]) * shard.delta',
        'base = row["max_id"] - demand.length(self.default_step) * shard.delta',
        (f"{CONTRACT}::test_an_edited_step_counts_from_the_next_fetch",),
    ),
    Break(
        "a row below the floor is used",
        "hazard 61",
        SERVER,
        "max_id__range=(1 if shared else _LOWEST, MAX_ID - _LONGEST_MOVE),",
        "max_id__range=(1, MAX_ID - _LONGEST_MOVE),",
        (f"{FETCH}::test_the_floor_is_respected",),
    ),
    Break(
        "a shared tag's row below the floor is used",
        "I2, hazard 61",
        SERVER,
        'Greatest(F("max_id"), _big(_LOWEST)) if shared',
        'F("max_id") if shared',
        (f"{SHARED}::test_a_process_gets_rising_ids_from_databases_at_different_heights",),
    ),
    Break(
        "a fetch that may be lost is longer than anybody knows",
        "hazard 60",
        SERVER,
        "        largest_step__gte=length * _big(2),\n",
        "",
        (f"{FAILOVER}::test_the_longest_range_is_written_before_it_is_used",),
    ),
    Break(
        "another server that took over is not asked for",
        "hazard 34",
        SERVER,
        "    if identity:\n",
        "    if identity is None:\n",
        (f"{FAILOVER}::test_each_change_of_the_server_is_followed",),
    ),
    Break(
        "ids near the end overflow",
        "I7",
        SERVER,
        "max_id__range=(1 if shared else _LOWEST, MAX_ID - _LONGEST_MOVE),",
        "max_id__range=(1 if shared else _LOWEST, MAX_ID),",
        (f"{FETCH}::test_the_last_ids_are_given_and_then_none",),
    ),
    Break(
        "a segment past the last id is made",
        "I7",
        SEGMENT,
        "if not 1 <= self.start < self.stop <= MAX_ID + 1 or self.delta < 1:",
        "if not self.start < self.stop or self.delta < 1:",
        ("tests/core/test_segment_rules.py::test_a_segment_has_ids_and_only_such",),
    ),
    Break(
        "a paused tag is granted",
        "I6",
        SERVER,
        "        paused=False,\n",
        "",
        ("tests/ops/tags/test_pausing.py::test_nothing_is_granted_once_the_pause_has_returned",),
    ),
    # --- what a server that took over, or a restore, has lost ------------------------
    Break(
        "a failover skips nothing",
        "hazard 34",
        SERVER,
        "return min(mark + self._failover_skip * longest, MAX_ID)",
        "return min(mark, MAX_ID)",
        (f"{FAILOVER}::test_how_much_is_skipped_can_be_set",),
    ),
    Break(
        "a failover skips by the row's step of now",
        "hazard 60",
        SERVER,
        "longest = row.largest_step or max(installation.largest_step, row.step)",
        "longest = row.step",
        (f"{FAILOVER}::test_the_longest_range_ever_counts",),
    ),
    Break(
        "a failover is noted and not skipped",
        "hazard 34",
        SERVER,
        "        if row.server or installation.first_id > 1:",
        "        if not row.server and installation.first_id > 1:",
        (f"{FAILOVER}::test_each_change_of_the_server_is_followed",),
    ),
    Break(
        "a tag that a failover lost whole begins at 1",
        "hazard 60",
        SERVER,
        "start = max(past, installation.first_id)",
        "start = past",
        (f"{FAILOVER}::test_a_tag_made_after_a_failover_starts_past_the_skip",),
    ),
    Break(
        "tags made after a failover start where others did",
        "hazard 60",
        SERVER,
        "            installation.first_id = self._past_loss(installation.first_id, longest)\n",
        "            pass\n",
        (f"{FAILOVER}::test_a_tag_made_after_a_failover_starts_past_the_skip",),
    ),
    Break(
        "an installation that was deleted has lost nothing",
        "hazard 60",
        SERVER,
        "        installation.first_id = self._past_loss(installation.first_id, largest)\n",
        "",
        (f"{FAILOVER}::test_an_installation_that_was_deleted_counts_as_a_loss",),
    ),
    Break(
        "a row that was put back gives others' ids again",
        "hazard 61",
        SERVER,
        "past = self._past_loss(floor.lowest, longest)",
        "past = floor.lowest",
        (f"{FETCH}::test_what_others_were_granted_is_not_given_again",),
    ),
    Break(
        "a row that was deleted gives others' ids again",
        "hazard 61",
        SERVER,
        "            return self._past_loss(floor.lowest, installation.largest_step)\n",
        "            pass\n",
        (f"{FETCH}::test_what_others_were_granted_is_not_given_again",),
    ),
    Break(
        "the longest range is not written down before it is used",
        "hazard 60",
        SERVER,
        "        if installation.largest_step >= wanted:\n            return False",
        "        if installation.largest_step >= 0:\n            return False",
        (f"{FAILOVER}::test_the_longest_range_is_written_before_it_is_used",),
    ),
    # --- several databases -----------------------------------------------------------
    Break(
        "a database gives out another's remainder",
        "I1, hazard 58",
        SEGMENT,
        "return base + (self.remainder - base) % self.delta",
        "return base",
        (f"{SHARED}::test_each_database_gives_out_its_own_remainder",),
    ),
    Break(
        "a fetch of several databases moves the row as one alone",
        "I1",
        SERVER,
        '    length = ids * Cast("delta", BigIntegerField())\n',
        "    length = ids * _big(1)\n",
        (f"{SHARED}::test_each_database_gives_out_its_own_remainder",),
    ),
    Break(
        "settings that divide the ids otherwise are let in",
        "I8, hazard 58",
        SERVER,
        "        if ours is None or shard == ours:\n            return\n",
        "        if ours is None or shard:\n            return\n",
        (f"{SHARED}::test_a_setting_that_differs_is_refused",),
    ),
    Break(
        "a database that gave out ids alone is joined by a setting",
        "I1, hazard 58",
        SERVER,
        "        if shard != ALONE or tag is not None:",
        "        if shard != ALONE:",
        (f"{SHARED}::test_a_database_that_gave_out_ids_alone_is_not_joined_by_a_setting",),
    ),
    Break(
        "an emptied database joins those that give out ids",
        "I1, hazard 58",
        SEVERAL,
        "        if new and used:",
        "        if new and not used:",
        (f"{GROWN}::test_a_database_that_was_emptied_does_not_start_over",),
    ),
    Break(
        "a new database begins below the old ones",
        "I1, hazard 58",
        GROWTH,
        "            max_id=top.max_id,\n            step=top.step,\n            description",
        "            max_id=1,\n            step=top.step,\n            description",
        (f"{GROWN}::test_it_goes_on_where_it_was_interrupted",),
    ),
    Break(
        "a new database begins below the highest of the old ones",
        "I1, hazard 58",
        GROWTH,
        "known.max_id = max(known.max_id, row.max_id)",
        "known.max_id = min(known.max_id, row.max_id)",
        (f"{GROWN}::test_what_is_fetched_before_a_database_is_divided_counts",),
    ),
    Break(
        "what is fetched before a database is divided does not count",
        "I1, hazard 58",
        GROWTH,
        """        for each in old:
            _divide(each.alias, each.shard, each.wanted)
        joining = [each.alias for each in new]
        # Read after all are divided: nothing is given out under the old division any more.
        top = _top([alias for alias in self.databases if alias not in joining])
""",
        """        joining = [each.alias for each in new]
        top = _top([alias for alias in self.databases if alias not in joining])
        for each in old:
            _divide(each.alias, each.shard, each.wanted)
""",
        (f"{GROWN}::test_what_is_fetched_before_a_database_is_divided_counts",),
    ),
    Break(
        "an emptied database joins as a new one",
        "I1, hazard 58",
        GROWTH,
        "        if unexpected and len(left) < len(members):",
        "        if unexpected and len(left) > len(members):",
        (f"{GROWN}::test_a_database_that_was_emptied_does_not_start_over",),
    ),
    # --- in the process ----------------------------------------------------------------
    Break(
        "a segment below the floor is accepted",
        "I1, hazard 61",
        PARTS,
        "            if segment.start >= floor and segment.tag == self.tag:",
        "            if segment.tag == self.tag:",
        (f"{GENERATOR}::test_a_segment_below_the_floor_is_refused_and_another_one_fetched",),
    ),
    Break(
        "a segment of another tag is accepted",
        "I1",
        PARTS,
        "            if segment.start >= floor and segment.tag == self.tag:",
        "            if segment.start >= floor:",
        (f"{GENERATOR}::test_a_segment_below_the_floor_is_refused_and_another_one_fetched",),
    ),
    Break(
        "the floor does not follow the grants",
        "hazard 61",
        PARTS,
        "        self._floor = max(self._floor, segment.stop)\n",
        "",
        (f"{GENERATOR}::test_each_fetch_names_the_end_of_the_highest_grant",),
    ),
    Break(
        "a late answer counts",
        "L4",
        PARTS,
        "            pending = load is self._pending\n            # A segment",
        "            pending = True\n            # A segment",
        (f"{GENERATOR}::test_a_load_that_never_answers_is_given_up_and_its_answer_ignored",),
    ),
    Break(
        "what went back is accepted again",
        "I1",
        PARTS,
        "                self._floor = segment.stop\n                self._given_back",
        "                self._given_back",
        (f"{AHEAD}::test_an_answer_that_went_back_is_never_accepted_again",),
    ),
    Break(
        "what goes back may still be taken",
        "I1, hazard 54",
        PARTS,
        "        open_part = drained(self._ids, delta)\n",
        "        from copy import copy\n\n        open_part = drained(copy(self._ids), delta)\n",
        (f"{AHEAD}::test_nothing_is_given_back_that_a_thread_has_in_hand",),
    ),
    Break(
        "the tail holds what others took of it meanwhile",
        "I1, hazard 54",
        "django_idgen/core/segment.py",
        "            if values[index] - values[index - 1] != delta:",
        "            if values[index] - values[index - 1] < delta:",
        ("tests/core/test_segment_rules.py::test_values_that_others_took_are_left_out",),
    ),
    Break(
        "a later segment is used before an earlier one",
        "I2, hazard 25",
        PARTS,
        "        self._ahead = segment\n",
        "        rest, self._rest = self._rest, segment.ids() if self._rest else self._rest\n"
        "        self._ahead = replace(segment, start=rest.start, stop=rest.stop) if rest "
        "else segment\n",
        (f"{AHEAD}::test_the_next_segment_is_used_after_the_current_one",),
    ),
    Break(
        "the next segment is opened twice",
        "I1",
        PARTS,
        "        segment, self._ahead = self._ahead, None\n",
        "        segment = self._ahead\n",
        (f"{AHEAD}::test_the_next_segment_is_used_after_the_current_one",),
    ),
    Break(
        "a rest is walked twice",
        "I1",
        PARTS,
        "        self._rest = self._rest[part:]\n",
        "        self._rest = self._rest[part - 1 :]\n",
        (f"{GENERATOR}::test_ids_begin_at_one_and_have_no_gaps",),
    ),
    Break(
        "a tag that was dropped forgets its floor",
        "I2, hazard 61",
        TAGS,
        "            self._floors[tag] = generator.lowest\n",
        "            pass\n",
        (f"{IDLE}::test_ids_of_a_dropped_tag_go_on_above_also_after_a_flush",),
    ),
    Break(
        "ids that loaded rows have are fetched",
        "I1, hazard 97",
        PARTS,
        "return max(self._floor, self._loaded_past)",
        "return self._floor",
        (f"{AHEAD}::test_the_source_hears_how_much_of_the_floor_was_granted",),
    ),
    Break(
        "ids that loaded rows have go back to the source",
        "I1, hazard 97",
        PARTS,
        "[ids[bisect_right(ids, top) :] for ids in self._take_back()]",
        "self._take_back()",
        (f"{AHEAD}::test_ids_of_loaded_rows_are_passed_over",),
    ),
    Break(
        "a tag is raised to a row that was loaded, and not past it",
        "I1, hazard 97",
        "django_idgen/ops/tags/loaded.py",
        "_raise(tag, top + 1)",
        "_raise(tag, top)",
        ("tests/process/test_loaded.py::test_new_keys_lie_past_those_that_were_loaded",),
    ),
    Break(
        "a tag has two generators",
        "I2",
        TAGS,
        "        known = self._dropped.get(tag)\n",
        "        known = None\n",
        (f"{IDLE}::test_a_dropped_generator_that_is_looked_up_is_the_same_while_it_lives",),
    ),
    Break(
        "threads at first use of a tag make a generator each",
        "I2, hazard 29",
        TAGS,
        "            found = self.get(tag)\n            return self._add(self._known_or_new(tag))"
        " if found is None else found",
        "            found = None\n            return self._add(self._known_or_new(tag))"
        " if found is None else found",
        (f"{FIRST_USE}[in_tags]",),
    ),
    Break(
        "a closed tag gives ids",
        "L3",
        PARTS,
        "        if self._closed or self._services.closed:",
        "        if self._closed is None:",
        (f"{GENERATOR}::test_a_closed_generator_refuses_and_closing_twice_is_fine",),
    ),
    # --- over HTTP -------------------------------------------------------------------------
    Break(
        "a client takes a segment below its floor",
        "hazard 61",
        HTTP,
        'start = number_of(body, "start", least=max(floor, 1), most=MAX_ID)',
        'start = number_of(body, "start", least=1, most=MAX_ID)',
        ("tests/remote/test_wrong_answers.py::test_a_segment_below_the_floor_is_refused",),
    ),
    Break(
        "a client takes a segment of another tag",
        "I1, hazard 76",
        HTTP,
        '    if body.get("tag") != tag:',
        '    if body.get("tag") is None:',
        ("tests/remote/test_wrong_answers.py::test_a_segment_that_cannot_be_right_is_refused",),
    ),
    Break(
        "a client takes ids of two databases",
        "L8",
        "django_idgen/remote/link.py",
        "        if found != ours:\n            raise other_installation",
        "        if not found:\n            raise other_installation",
        ("tests/remote/test_wrong_answers.py::test_a_database_that_comes_later_is_refused_too",),
    ),
    Break(
        "a client takes an answer that is not that of its request",
        "L4",
        "django_idgen/remote/link.py",
        '        if body is not None and answer.body.get("nonce") != nonce:',
        '        if body is not None and answer.body.get("nonce") == "":',
        (
            "tests/remote/test_wrong_answers.py::test_what_is_no_grant_is_an_error_that_says_why",
            "tests/remote/test_wrong_answers.py::test_a_grant_with_parts_missing_is_refused",
            "tests/remote/test_wrong_answers.py::test_an_answer_that_tells_nothing_is_a_lost_grant",
        ),
    ),
    Break(
        "a request whose answer was lost is sent to the next address",
        "L4",
        "django_idgen/remote/link.py",
        "                raise unavailable(self._lost(place, error, changes=body is not None))"
        " from error",
        "                failures.append(self._lost(place, error, changes=body is not None))",
        ("tests/remote/test_faults.py::test_after_a_lost_answer_another_address_is_asked_first",),
    ),
    Break(
        "a new tag begins at 1 though its table has rows",
        "hazard 81",
        "django_idgen/process/watch.py",
        "        return max(int(found or 0), 0)",
        "        return 0",
        (
            "tests/sources/test_renamed_models.py::test_a_new_tag_begins_above_the_rows_of_its_table",
        ),
    ),
    Break(
        "a table that is not listed literally counts as empty",
        "hazard 102",
        "django_idgen/process/watch.py",
        "        elif not has_table(connection, table):",
        "        elif table not in connection.introspection.table_names():",
        (
            "tests/sources/test_places_of_tables.py::test_a_tag_begins_above_the_rows_that_a_query_finds",
        ),
    ),
    Break(
        "rows in a second database of a router are not looked at",
        "hazard 102",
        "django_idgen/process/watch.py",
        "    if settings.DATABASE_ROUTERS:\n",
        "    if False:\n",
        (
            "tests/sources/test_places_of_tables.py::test_a_tag_begins_above_the_rows_of_every_database",
        ),
    ),
    Break(
        "a tag that another program moved counts as looked at",
        "hazard 99",
        "django_idgen/sources/server.py",
        '        if unseen := demand.tables - frozenset(row["tables_seen"].split()):',
        "        if unseen := frozenset():",
        (f"{SEEN}::test_rows_come_before_ids_whatever_moved_the_tag",),
    ),
    Break(
        "a tag that is made counts as looked at",
        "hazard 99",
        "django_idgen/sources/server.py",
        "        if demand.unseen:\n",
        "        if False:\n",
        (f"{SEEN}::test_a_table_is_looked_at_once",),
    ),
    Break(
        "a table is recorded without its rows being passed",
        "hazard 99",
        "django_idgen/core/segment_generator.py",
        "        self.go_past(top)\n",
        "",
        (f"{SEEN}::test_rows_come_before_ids_whatever_moved_the_tag",),
    ),
    Break(
        "a second table of a tag is not looked at",
        "hazard 99",
        "django_idgen/core/segment_generator.py",
        "            if self._floor or self._pending is not None:\n                return new\n",
        "",
        (f"{SEEN}::test_a_second_table_of_the_tag_is_looked_at",),
    ),
    Break(
        "a source that stores no looks is believed",
        "hazard 99",
        "django_idgen/core/segment_generator.py",
        "        if demand.unseen and not self._services.source.knows_tables:",
        "        if False:",
        (f"{SEEN}::test_what_a_pool_was_given_before_is_passed_by",),
    ),
    Break(
        "the tables of all tenants count as one",
        "hazard 103",
        "django_idgen/process/watch.py",
        "            quoted, *address[2:] = found",
        "            quoted = found[0]",
        (f"{SEEN}::test_each_tenant_is_looked_at",),
    ),
    Break(
        "a tenant is looked at by a process' first caller alone",
        "hazard 103",
        "django_idgen/process/watch.py",
        'getattr(connections[alias], "schema_name", None)',
        "None",
        (f"{SEEN}::test_each_tenant_is_looked_at_by_one_process",),
    ),
    Break(
        "a coroutine looks on a connection without its tenant",
        "hazard 103",
        "django_idgen/process/watch.py",
        "        await sync_to_async(partial(_closing_new, ask))()",
        "        await asyncio.to_thread(partial(_closing_new, ask))",
        (f"{SEEN}::test_a_coroutine_looks_in_its_search_path",),
    ),
    Break(
        "a renamed model's tag knows nothing of the old one",
        "hazard 81",
        "django_idgen/ops/tags/migrated.py",
        "        if not known or (is_new and tag not in handlers.segments.fields):",
        "        if known or is_new or not is_new:",
        ("tests/sources/test_renamed_models.py::test_ids_go_on_when_a_model_is_renamed",),
    ),
    Break(
        "a restored database without a tag gives out its first ids again",
        "I1",
        "django_idgen/management/commands/idgen_skip.py",
        '    return skip_of_new_tags(project, options["by"])\n',
        "    return 0\n",
        ("tests/ops/doctor/test_moves.py::test_new_tags_start_higher_where_no_tag_is_left",),
    ),
    Break(
        "a divided row keeps the length of its ranges",
        "hazard 58",
        GROWTH,
        'largest_step=F("largest_step") * times',
        'largest_step=F("largest_step")',
        (f"{GROWN}::test_from_one_to_three",),
    ),
    Break(
        "a divided database keeps the length of its ranges",
        "hazard 58",
        GROWTH,
        "        installation.largest_step *= times\n",
        "",
        (f"{GROWN}::test_from_one_to_three",),
    ),
    Break(
        "one tag's long range is every tag's skip",
        "hazard 105",
        SERVER,
        "longest = row.largest_step if is_recorded else installation.largest_step",
        "longest = installation.largest_step",
        (f"{FETCH}::test_a_long_range_of_one_tag_moves_no_other",),
    ),
)
