"""A generator in a world without real time, and what it told."""

from __future__ import annotations

from typing import ClassVar

from tests.simulation.world import World, layout_of

TINY = layout_of(("time", 41), ("worker", 2), ("sequence", 2))
WINDOW = 10_000


class Running:
    """A generator in a world of its own, and what it told."""

    made: ClassVar[list[Running]] = []

    def __init__(self, layout=TINY, *, window=WINDOW, world=None, **options) -> None:
        self.world = world or World(layout, window_ticks=window)
        self.host = self.world.host()
        self.link = self.host.link()
        self.events: list[tuple[str, dict]] = []
        self.generator = self.host.generator(self.link, emit=self.hear, **options)
        self.made.append(self)

    def hear(self, name, /, **values) -> None:
        self.events.append((name, values))

    def heard(self, name: str) -> int:
        return sum(each == name for each, _ in self.events)

    def now(self) -> int:
        return self.world.registry_tick()

    def tick_of(self, value: int) -> int:
        return value >> self.world.layout.time_shift & self.world.layout.max_ticks - 1

    def next_tick(self) -> int:
        return self.tick_of(self.generator.next_id())

    def renew(self) -> None:
        self.generator.keeper.renew_in_background()
