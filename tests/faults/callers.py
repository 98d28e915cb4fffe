"""Callers under load: threads and coroutines that take ids all the time, and what they got."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .processes import eventually


@dataclass(frozen=True, slots=True)
class Call:
    """One call for an id. Moments are of ``time.monotonic``."""

    caller: str
    began: float
    ended: float
    value: int | None = None
    error: Exception | None = None


class Callers:
    """Take ids of ``generator`` in threads, and in coroutines of one event loop, for a block."""

    def __init__(
        self, generator: Any, *, threads: int = 0, tasks: int = 0, pause: float = 0.005
    ) -> None:
        self.calls: list[Call] = []
        self.names = [f"thread {n}" for n in range(threads)] + [f"task {n}" for n in range(tasks)]
        self._generator = generator
        self._pause = pause
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._take, args=(name,)) for name in self.names[:threads]
        ]
        if tasks:
            tasked = self.names[threads:]
            self._threads.append(threading.Thread(target=asyncio.run, args=(self._loop(tasked),)))

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _take(self, name: str) -> None:
        while not self._ending.wait(self._pause):
            began = time.monotonic()
            try:
                value = self._generator.next_id()
            except Exception as error:
                self._note(name, began, error=error)
            else:
                self._note(name, began, value=value)

    async def _loop(self, names: Iterable[str]) -> None:
        await asyncio.gather(*map(self._take_in_loop, names))

    async def _take_in_loop(self, name: str) -> None:
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                value = await self._generator.anext_id()
            except Exception as error:
                self._note(name, began, error=error)
            else:
                self._note(name, began, value=value)
            await asyncio.sleep(self._pause)

    def _note(self, name: str, began: float, **outcome: Any) -> None:
        self.calls.append(Call(name, began, time.monotonic(), **outcome))

    # --- what came of it -----------------------------------------------------------

    def ids(self) -> list[int]:
        return [call.value for call in self.calls if call.value is not None]

    def failed(self) -> list[Call]:
        return [call for call in self.calls if call.error is not None]

    def wait_for_ids(self, count: int) -> None:
        eventually(lambda: len(self.ids()) >= count, say=lambda: str(self.failed()[:1]))

    def wait_for_failures(self, count: int) -> None:
        """Come back once each of the callers has failed so often."""

        def all_did() -> bool:
            times: dict[str, int] = defaultdict(int)
            for call in self.failed():
                times[call.caller] += 1
            return all(times[name] >= count for name in self.names)

        eventually(all_did)

    def first_ids_since(self, moment: float) -> dict[str, float]:
        """When each of the callers was given the first id since ``moment``; waits for all."""
        first: dict[str, float] = {}

        def all_got_one() -> bool:
            for call in list(self.calls):
                if call.value is not None and call.ended >= moment:
                    first.setdefault(call.caller, call.ended)
            return len(first) == len(self.names)

        eventually(all_got_one, say=lambda: str(self.failed()[-1:]))
        return first

    def assert_unique_and_rising(self) -> None:
        """I1 and I2: no id came twice, and a call that began after another's end got a higher."""
        ids = self.ids()
        assert ids, "nothing was taken"
        assert len(set(ids)) == len(ids)
        by_end = iter(sorted(self.calls, key=lambda call: call.ended))
        earlier = next(by_end)
        highest = 0
        for call in sorted(self.calls, key=lambda call: call.began):
            while earlier.ended < call.began:
                highest = max(highest, earlier.value or 0)
                earlier = next(by_end)
            assert call.value is None or call.value > highest

    def assert_tasks_wait_together(self) -> None:
        """A coroutine that waits holds up no other: in a blocked loop there is one at a time."""
        tasks = [call for call in self.failed() if call.caller.startswith("task")]
        wanted = {call.caller for call in tasks}
        assert wanted

        def waiting_with(call: Call) -> set[str]:
            return {
                one.caller for one in tasks if one.began < call.ended and call.began < one.ended
            }

        assert any(waiting_with(call) == wanted for call in tasks)
