"""Forks, and the one generator of a process (L9, I5)."""

from __future__ import annotations

from .definition import Break

__all__ = ["BREAKS"]

PROCESSES = "tests/core/test_snowflake_processes.py"
THREADS = "tests/core/test_segment_threads.py"

FIRST_USE = "tests/db/test_connection.py::test_two_threads_at_first_use_share_one"

BREAKS = (
    Break(
        "a fork does not find what is being closed",
        "I5",
        "django_idgen/process/maps.py",
        "*(made for _alias, made in self._aside)",
        "",
        (
            "tests/process/test_tag_generators.py::test_a_fork_finds_a_generator_that_a_test_replaces",
            "tests/process/test_tag_generators.py::test_a_fork_finds_what_is_being_closed[False]",
        ),
    ),
    Break(
        "a fork does not find tags that are being closed",
        "I5",
        "django_idgen/process/maps.py",
        "for each in (*self._leaving, self._allocator)",
        "for each in (self._allocator,)",
        ("tests/process/test_tag_generators.py::test_a_fork_finds_what_is_being_closed[True]",),
    ),
    Break(
        "a fork is not told to the tags of a client that nobody kept",
        "I5",
        "django_idgen/client.py",
        "wait, self._tell)",
        "wait, on_event)",
        ("tests/remote/test_faults.py::test_a_generator_outlives_its_client",),
    ),
    Break(
        "a fork does not wait for an import that is under way",
        "I5",
        "django_idgen/process/maps.py",
        "forget=forget, before_fork=import_backends)",
        "forget=forget)",
        (
            "tests/process/test_start_imports.py::test_a_fork_during_the_first_id_finds_no_import_under_way",
        ),
    ),
    Break(
        "threads at first use make a generator each",
        "I2, hazard 29",
        "django_idgen/process/maps.py",
        "        with self._lock:\n            if alias not in self._made:",
        "        if self._lock:\n            if alias not in self._made:",
        (f"{FIRST_USE}[in_generators]",),
    ),
    Break(
        "threads at first use make an allocator each",
        "I2, hazard 29",
        "django_idgen/process/maps.py",
        "            with self._lock:\n                found = self._allocator\n",
        "            if self._lock:\n                found = self._allocator\n",
        (f"{FIRST_USE}[in_segments]",),
    ),
    Break(
        "threads at first use make a store each",
        "I1, hazard 29",
        "django_idgen/db/connection.py",
        "            with self._lock:\n                found = self._made.get(key)",
        "            if self._lock:\n                found = self._made.get(key)",
        (f"{FIRST_USE}[in_stores]",),
    ),
    Break(
        "no fork hook drops what was inherited",
        "I5, hazard 14",
        "django_idgen/process/exits.py",
        "        os.register_at_fork(before=before, after_in_child=forget)",
        "        pass",
        ("tests/faults/test_multiprocessing.py::test_a_child_takes_nothing_of_its_parents_tick",),
    ),
    Break(
        "a child keeps its parent's generators",
        "I5, hazard 14",
        "django_idgen/process/maps.py",
        "        exits.call_all(partial(self.drop_inherited, each) for each in every)\n",
        "",
        ("tests/faults/test_multiprocessing.py::test_a_child_takes_nothing_of_its_parents_tick",),
    ),
    Break(
        "a child keeps its parent's segments",
        "I5, hazard 36",
        "django_idgen/process/maps.py",
        "        exits.call_all(allocator.forget for allocator in every)\n",
        "",
        ("tests/faults/test_multiprocessing.py::test_processes",),
    ),
    Break(
        "a child keeps its parent's lease",
        "I5, hazard 14",
        "django_idgen/core/snowflake.py",
        "        self._start_over()\n        self.keeper.forget()\n",
        "        self._start_over()\n",
        (f"{PROCESSES}::test_forked_children_never_repeat_their_parents_ids",),
    ),
    Break(
        "a child keeps its parent's open tick",
        "I5, hazard 14",
        "django_idgen/core/snowflake.py",
        "        self._start_over()\n        self.keeper.forget()\n",
        "        self.keeper.forget()\n",
        ("tests/faults/test_multiprocessing.py::test_a_child_takes_nothing_of_its_parents_tick",),
    ),
    Break(
        "without hooks a child goes on with its parent's lease",
        "I5, L9, hazard 56",
        "django_idgen/core/loader.py",
        "                if self._pid != os.getpid():\n                    self.forget()",
        "                if self._pid != os.getpid():\n                    pass",
        (f"{PROCESSES}::test_forked_children_never_repeat_their_parents_ids",),
    ),
    Break(
        "without hooks a child's close frees its parent's worker id",
        "I5, L9",
        "django_idgen/core/snowflake.py",
        "        # A child must not give back what its parent still uses.\n"
        "        self.check_process()\n",
        "",
        (f"{PROCESSES}::test_a_child_that_made_no_id_does_not_give_its_parents_worker_id_back",),
    ),
    Break(
        "without hooks a child goes on with its parent's segments",
        "I5, L9, hazard 56",
        "django_idgen/core/loader.py",
        "        if self._pid != os.getpid():\n            with process_lock():",
        "        if self._pid < 0:\n            with process_lock():",
        (f"{THREADS}::test_a_child_without_hooks_stops_at_its_first_slow_path",),
    ),
    Break(
        "a child that forgets keeps the segments on hand",
        "I5, hazard 36",
        "django_idgen/core/segment_generator.py",
        "next_id may be on it\n        self._start_over()\n",
        "next_id may be on it\n        rest = self._rest\n"
        "        self._start_over()\n        self._rest = rest\n",
        (f"{THREADS}::test_a_child_that_forgets_never_issues_what_its_parent_holds",),
    ),
    Break(
        "a child that forgets keeps the next segment",
        "I5, hazard 36",
        "django_idgen/core/segment_generator.py",
        "next_id may be on it\n        self._start_over()\n",
        "next_id may be on it\n        ahead = self._ahead\n"
        "        self._start_over()\n        self._ahead = ahead\n",
        (f"{THREADS}::test_a_child_that_forgets_never_issues_what_its_parent_holds",),
    ),
    Break(
        "a next_id that was kept gives a child its parent's ids",
        "I5, hazard 36",
        "django_idgen/core/generator.py",
        "iterator.__setstate__(sys.maxsize)",
        "iterator.__length_hint__()",
        (f"{THREADS}::test_a_next_id_that_was_kept_gives_a_child_nothing_of_its_parents",),
    ),
    Break(
        "what feeds next_id is Python, which an interrupt ends for ever",
        "hazard 121",
        "django_idgen/core/generator.py",
        "starmap(pop, repeat((key, ask)))",
        "pop(key, ask) for _ in repeat(None)",
        (f"{THREADS}::test_an_interrupt_does_not_end_what_next_id_walks",),
    ),
    Break(
        "uWSGI's master holds a grant when it forks",
        "L9, hazard 56",
        "django_idgen/core/loader.py",
        "    return uwsgi.worker_id() == 0 and uwsgi.masterpid() in {0, os.getpid()}",
        "    return False",
        ("tests/core/test_prefork.py::test_each_call_gives_back_what_it_does_not_need",),
    ),
    Break(
        "a child uses its parent's connection to a service",
        "L9, I5",
        "django_idgen/remote/link.py",
        "                if made is None or made[0] != os.getpid():\n                    wire = ",
        "                if made is None:\n                    wire = ",
        ("tests/remote/test_faults.py::test_a_child_without_hooks_has_a_connection_of_its_own",),
    ),
    Break(
        "an interrupt while a thread starts is lost",
        "hazard 121",
        "django_idgen/core/loader.py",
        "            if error.__context__ is not None:\n",
        "            if error.__context__ is error:\n",
        ("tests/core/test_loader.py::test_an_interrupt_of_a_threads_start_reaches_the_caller",),
    ),
    Break(
        "an exception of a signal handler leaves a registry's turn taken for ever",
        "hazard 121",
        "django_idgen/core/loader.py",
        "        try:\n            return call() if self._take(mine, timeout) else late()\n",
        "        if not self._take(mine, timeout):\n            return late()\n"
        "        try:\n            return call()\n",
        ("tests/core/test_loader.py::test_an_interrupt_leaves_nobodys_turn_taken",),
    ),
)
