"""``python -m tests.partitions.relay PORT ADDRESS SECONDS``: passes bytes on, late."""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress


async def pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
) -> None:
    with suppress(OSError):
        while found := await reader.read(65536):
            await asyncio.sleep(random.uniform(0, seconds))
            writer.write(found)
            await writer.drain()
    writer.close()


async def main(port: int, address: str, seconds: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(address, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pass_on(reader, there[1], seconds), pass_on(there[0], writer, seconds))

    server = await asyncio.start_server(connected, "0.0.0.0", port)
    await server.serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
