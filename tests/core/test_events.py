"""Events: kept under a lock, sent without one, and no trouble to those who cause them."""

from __future__ import annotations

import logging
import threading

from django_idgen.core.events import Outbox


def test_events_wait_until_they_are_sent():
    """Nothing reaches the listener from inside ``put``; then all do, in their order.

    The event's name is positional, so that a value may be called so.
    """
    heard = []
    outbox = Outbox(lambda name, /, **values: heard.append((name, values)))
    outbox.put("one", name="worker")
    outbox.put("two")
    assert heard == []
    outbox.send()
    assert heard == [("one", {"name": "worker"}), ("two", {})]
    outbox.send()
    assert len(heard) == 2


def test_a_listener_that_fails_stops_neither_the_caller_nor_the_next_event(caplog):
    """Its exception is logged with the name of the event."""
    heard = []

    def listen(name, **values):
        heard.append(name)
        raise RuntimeError("a listener's own fault")

    outbox = Outbox(listen)
    outbox.put("one")
    outbox.put("two")
    with caplog.at_level(logging.ERROR, "django_idgen"):
        outbox.send()
    assert heard == ["one", "two"]
    assert "'one' failed" in caplog.text
    assert "a listener's own fault" in caplog.text


def test_a_listener_that_always_causes_more_events_keeps_nobody():
    """What it causes waits for the next send: no recursion, no endless loop."""
    heard = []

    def listen(name, **values):
        heard.append(name)
        outbox.put("again")
        outbox.send()

    outbox = Outbox(listen)
    outbox.put("first")
    outbox.send()
    assert heard == ["first"]
    outbox.send()
    assert heard == ["first", "again"]


def test_two_threads_send_each_event_once():
    """Of several senders one takes each event."""
    heard = []
    outbox = Outbox(lambda name, **values: heard.append(values["number"]))
    for number in range(1000):
        outbox.put("event", number=number)
    threads = [threading.Thread(target=outbox.send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(heard) == list(range(1000))


def test_a_forked_child_does_not_send_its_parents_events():
    """After ``clear`` nothing that was put is left."""
    heard = []
    outbox = Outbox(lambda name, **values: heard.append(name))
    outbox.put("the parent's")
    outbox.clear()
    outbox.send()
    assert heard == []
