"""Draw the pictures of the docs: ``python docs/drawings.py`` writes them into docs/drawings/.

It needs the standard library, and this package for the bits of its layouts. Each picture has a
background of its own, light or dark as the reader's system, so that it can be read on any page.
``tests/test_docs.py`` checks that the files are what this script makes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from django_idgen.core.layout import PRESETS, parse_layout  # noqa: E402
from django_idgen.core.tag_generator import COUNTER_BITS  # noqa: E402

FOLDER = ROOT / "docs" / "drawings"
WIDTH = 800

STYLE = """
text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
       fill: #1f2933 }
.small { font-size: 12px; fill: #52606d }
.bold { font-weight: 600 }
.in { font-size: 13px; fill: #fff; font-weight: 600 }
.mid { text-anchor: middle }
.end { text-anchor: end }
.page { fill: #fff; stroke: #d9dee4 }
.box { fill: #eef2f5; stroke: #b6c0ca }
.time { fill: #2372b9 } .worker { fill: #2e8540 } .sequence { fill: #b45309 }
.batch { fill: #7b4fb5 }
.unused { fill: #cfd6dd }
.a { fill: #00796b } .b { fill: #3f51b5 } .c { fill: #b45309 }
.a-pale { fill: #b2d8d3 } .b-pale { fill: #c5cae9 }
.line { stroke: #52606d; stroke-width: 1.5; fill: none }
.dash { stroke: #52606d; stroke-width: 1.5; stroke-dasharray: 4 4; fill: none }
.alarm { stroke: #c62828; stroke-width: 2; fill: none }
.alarm-text { fill: #c62828; font-weight: 600 }
.head { fill: #52606d }
@media (prefers-color-scheme: dark) {
  text { fill: #e6eaee }
  .small { fill: #a9b4bf }
  .in { fill: #fff }
  .page { fill: #1e2129; stroke: #3a404b }
  .box { fill: #2b303a; stroke: #55606d }
  .unused { fill: #444c57 }
  .time { fill: #3a82c4 } .worker { fill: #2f8a45 } .sequence { fill: #c2620e }
  .batch { fill: #8a5fc4 } .a { fill: #00897b } .b { fill: #5c6bc0 } .c { fill: #c2620e }
  .a-pale { fill: #1f4f4a } .b-pale { fill: #333d70 }
  .line, .dash { stroke: #a9b4bf } .head { fill: #a9b4bf }
  .alarm { stroke: #ff8a80 } .alarm-text { fill: #ff8a80 }
}
"""


class Drawing:
    """An SVG of ``height``, put together piece by piece."""

    def __init__(self, title: str, height: int, style: str = STYLE) -> None:
        self.title = title
        self.height = height
        self.style = style
        self.pieces: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        """Write ``words``; ``y`` is the line that they stand on."""
        name = f' class="{kind}"' if kind else ""
        self.pieces.append(f'<text x="{x:g}" y="{y:g}"{name}>{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """Draw a rectangle."""
        self.pieces.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" '
            f'class="{kind}"/>'
        )

    def named_box(self, x: float, y: float, width: float, height: float, *lines: str) -> None:
        """Draw a rectangle with a name and lines below it."""
        self.box(x, y, width, height, "box")
        top = y + height / 2 - 9 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            kind = "small mid" if number else "bold mid"
            self.text(x + width / 2, top + 18 * number, line, kind)

    def line(self, *points: tuple[float, float], kind: str = "line", arrow: bool = False) -> None:
        """Draw a line through ``points``."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        end = ' marker-end="url(#arrow)"' if arrow else ""
        self.pieces.append(f'<polyline points="{path}" class="{kind}"{end}/>')

    def svg(self) -> str:
        """Return the file's content."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" '
                f'width="{WIDTH}" height="{self.height}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{self.style}</style>",
                '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
                'markerHeight="8" orient="auto"><path d="M0,0 L8,4 L0,8 z" class="head"/>'
                "</marker></defs>",
                f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{self.height - 1}" rx="8" '
                'class="page"/>',
                *self.pieces,
                "</svg>\n",
            ]
        )


def layouts() -> Drawing:
    """Draw the bits of each layout, to scale."""
    rows = [(name, fields, parse_layout(name).tick_us) for name, (fields, _) in PRESETS.items()]
    rows.append(("serial", (("worker", 63 - COUNTER_BITS), ("counter", COUNTER_BITS)), 0))
    drawing = Drawing("The bits of each layout", 96 + 62 * len(rows))
    left, bit = 24, (WIDTH - 48) / 64
    drawing.text(left, 34, "The 64 bits of an id, highest first", "bold")
    drawing.text(left, 54, "The grey bits are 0: the first is the sign, so every id is positive.",
                 "small")  # fmt: skip
    for number, (name, fields, tick_us) in enumerate(rows):
        top = 92 + 62 * number
        own = " (a generator of its own, no layout)" if name == "serial" else ""
        drawing.text(left, top, name + own, "bold")
        drawing.text(WIDTH - left, top, _about(dict(fields), tick_us), "small end")
        unused = 64 - sum(bits for _, bits in fields)
        drawing.box(left, top + 8, unused * bit - 1, 26, "unused")
        x = left + unused * bit
        for field, bits in fields:
            drawing.box(x, top + 8, bits * bit - 1, 26, "sequence" if field == "counter" else field)
            words = f"{field} {bits}" if bits > 6 else str(bits)
            drawing.text(x + bits * bit / 2, top + 26, words, "in mid")
            if bits <= 6:  # too narrow for its name
                drawing.text(x + bits * bit / 2, top + 46, field, "small mid")
            x += bits * bit
    return drawing


def _about(bits: dict[str, int], tick_us: int) -> str:
    if not tick_us:
        return f"no clock; {2 ** bits['worker']:,} workers, 2^{bits['counter']} ids each"
    years = 2 ** bits["time"] * tick_us / 1e6 / 86400 / 365.25
    tick = f"{tick_us // 1000} ms" if tick_us < 1_000_000 else f"{tick_us // 1_000_000} s"
    ids = 2 ** (bits["sequence"] + bits.get("batch", 0))
    return (
        f"tick {tick}, {int(years)} years, {2 ** bits['worker']:,} workers, "
        + ("up to " if "batch" in bits else "")
        + f"{ids:,} ids a tick and worker"
    )


def lease() -> Drawing:
    """Draw the windows of one worker id over time: acquired, renewed, paused over, taken again."""
    drawing = Drawing("The windows of a worker id over time", 420)
    left, scale = 140, 1.05  # pixels a second

    def at(second: float) -> float:
        return left + second * scale

    drawing.text(24, 34, "Worker id 7 over ten minutes, with a window of 180 s", "bold")
    drawing.text(24, 54, "A window is time that the registry has promised. No two windows of "
                 "one worker id overlap.", "small")  # fmt: skip
    axis = 386
    drawing.line((left, axis), (at(605), axis), arrow=True)
    for second in range(0, 601, 60):
        drawing.line((at(second), axis - 4), (at(second), axis + 4))
        drawing.text(at(second), axis + 20, f"{second}", "small mid")
    drawing.text(24, axis + 5, "seconds", "small")

    # Process A: acquires at 0, renews at 60 and 120, is stopped from 140 to 400.
    drawing.text(24, 112, "process A", "bold")
    drawing.box(at(0), 94, 140 * scale, 26, "a")
    drawing.text(at(70), 112, "gives ids", "in mid")
    drawing.box(at(140), 94, 260 * scale, 26, "box")
    drawing.text(at(270), 112, "paused: debugger, swap, SIGSTOP", "small mid")
    drawing.line((at(400), 86), (at(400), 128), kind="alarm")
    drawing.text(at(400), 80, "wakes up: its window is over", "alarm-text mid")
    drawing.box(at(404), 94, 196 * scale, 26, "c")
    drawing.text(at(502), 112, "continues as worker 12", "in mid")

    drawing.text(24, 176, "windows of 7", "bold")
    for number, (now, words) in enumerate([(0, "acquire"), (60, "renew"), (120, "renew")]):
        top = 148 + 30 * number
        drawing.box(at(0), top, (now + 180) * scale, 22, "a-pale")
        drawing.text(at(0) + 8, top + 16, f"at {now}: {words}, until {now + 180}")
    drawing.line((at(300), 140), (at(300), axis), kind="dash")
    drawing.text(at(300) + 8, 160, "mark: 300", "bold")
    drawing.text(at(300) + 8, 178, "The worker id is free from here on.", "small")

    # Process B takes the worker id over.
    drawing.box(at(330), 240, 180 * scale, 22, "b-pale")
    drawing.text(at(330) + 8, 256, "at 330: acquire, until 510")
    drawing.text(24, 326, "process B", "bold")
    drawing.box(at(330), 308, 270 * scale, 26, "b")
    drawing.text(at(465), 326, "gives ids as worker 7", "in mid")
    drawing.box(at(330), 270, 240 * scale, 22, "b-pale")
    drawing.text(at(330) + 8, 286, "at 390: renew, until 570, …")
    return drawing


def segment() -> Drawing:
    """Draw the segments of one tag in two processes, with the preload mark."""
    drawing = Drawing("A segment, its preload mark and the next segment", 372)
    left, unit = 132, 0.152  # pixels an id
    rows = [
        ("process A", 92, [(1, 1000, "a"), (2001, 3000, "a-pale")]),
        ("process B", 172, [(1001, 2000, "b"), (3001, 4000, "b-pale")]),
    ]
    drawing.text(24, 34, "Segments of the tag shop.parcel, with a step of 1000", "bold")
    drawing.text(24, 54, "Each process gives out its own segment. So ids rise in a process, "
                 "not across processes.", "small")  # fmt: skip
    for name, top, segments in rows:
        drawing.text(24, top + 20, name, "bold")
        for start, stop, kind in segments:
            x, width = left + (start - 1) * unit, 1000 * unit
            drawing.box(x, top, width - 2, 30, kind)
            words = "mid" if "pale" in kind else "in mid"
            drawing.text(x + width / 2, top + 20, f"{start} to {stop}", words)
        x = left + (segments[0][0] - 1 + 100) * unit
        drawing.line((x, top - 8), (x, top + 38), kind="alarm")
    x = left + 100 * unit
    drawing.text(x + 6, 86, "preload mark: 10 % is used, load the next one", "alarm-text")
    drawing.text(left + 2000 * unit, 140, "next segment: loaded before it is needed", "small")

    top = 268
    drawing.text(24, top - 12, "leaf_alloc, the table of tags", "bold")
    columns = [("biz_tag", 150), ("step", 80), ("max_id", 100)]
    x = 24.0
    for (column, width), value in zip(columns, ("shop.parcel", "1000", "4001"), strict=True):
        drawing.box(x, top, width, 24, "unused")
        drawing.text(x + 8, top + 17, column, "small")
        drawing.box(x, top + 24, width, 28, "box")
        drawing.text(x + 8, top + 43, value, "bold")
        x += width
    drawing.text(380, top + 16, "A fetch raises max_id by the step, and commits at once.")
    drawing.text(380, top + 38, "The process alone owns the ids between old and new.")
    drawing.text(24, top + 82, "A process that is killed loses the rest of its segments: a gap, "
                 "never a repeat.", "small")  # fmt: skip
    return drawing


def pool() -> Drawing:
    """Draw the ways of a segment: scheduler, database, pool and processes."""
    drawing = Drawing("The pool between scheduler, processes and database", 380)
    drawing.text(24, 34, "A pool in Redis keeps segments ready", "bold")
    drawing.text(24, 54, "While the database is down, processes go on with what lies in the pool.",
                 "small")  # fmt: skip
    drawing.named_box(40, 150, 170, 84, "database", "leaf_alloc", "the one authority")
    drawing.named_box(320, 90, 170, 64, "scheduler", "preload_segments, 60 s")
    drawing.named_box(320, 232, 170, 84, "pool in Redis", "segments, ready", "may be lost: a gap")
    for number in range(3):
        drawing.named_box(620, 98 + 78 * number, 140, 54, f"process {number + 1}", "its segments")
    drawing.line((210, 170), (265, 170), (265, 122), (318, 122), arrow=True)
    drawing.text(222, 112, "1 fetch", "bold")
    drawing.line((405, 154), (405, 230), arrow=True)
    drawing.text(414, 198, "2 put", "bold")
    for number in range(3):
        y = 125 + 78 * number
        drawing.line((490, 262), (555, 262), (555, y), (618, y), arrow=True)
    drawing.text(500, 252, "3 take", "bold")
    drawing.line((690, 308), (690, 340), (405, 340), (405, 318), kind="dash", arrow=True)
    drawing.text(548, 334, "4 give back at exit", "small mid")
    drawing.line(
        (125, 234), (125, 360), (778, 360), (778, 203), (762, 203), kind="dash", arrow=True
    )
    drawing.text(240, 354, "pool empty or down: fetch directly", "small")
    return drawing


DRAWINGS = {"layouts": layouts, "lease": lease, "segment": segment, "pool": pool}


def made() -> dict[str, str]:
    """Return the content of each file by its name."""
    return {f"{name}.svg": draw().svg() for name, draw in DRAWINGS.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, content in made().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
