"""``python -m tests.scratch_servers COMMAND``: run it with database servers that keep nothing.

A PostgreSQL and a MariaDB of the installed packages, with their files in memory, that never wait
for a disk: making and dropping test databases, of which the tests do many, then costs a tenth.
A server whose package is missing is left to the one at its standard port. Temporary files are in
memory, too. Standard library alone.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.servers import fast_directory, free_port

PATIENCE = 60
POSTGRES = (
    "fsync=off",
    "full_page_writes=off",
    "listen_addresses=127.0.0.1",
    "max_connections=200",
    "shared_buffers=32MB",
)
MARIADB = (
    "--no-defaults",
    "--bind-address=127.0.0.1",
    "--character-set-server=utf8mb4",
    "--collation-server=utf8mb4_general_ci",
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-flush-method=nosync",
    "--innodb-log-file-size=48M",
    "--max-connections=200",
    "--skip-name-resolve",
)


def main(command: list[str]) -> int:
    """Run ``command`` and return its exit status."""
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="idgen-servers-", dir=fast_directory()) as name:
        Path(name).chmod(0o755)
        try:
            environment = {
                "IDGEN_TEST_POSTGRES": _postgres(Path(name, "postgres"), started),
                "IDGEN_TEST_MARIADB": _mariadb(Path(name, "mariadb"), started),
            }
            found = {key: url for key, url in environment.items() if url}
            found["TMPDIR"] = str(Path(name, "t"))
            Path(found["TMPDIR"]).mkdir()
            return subprocess.run(command, env=found | os.environ, check=False).returncode
        finally:
            for process in started:
                process.send_signal(signal.SIGQUIT)  # at once: nothing is worth keeping
                process.wait(PATIENCE)


def _postgres(directory: Path, started: list[subprocess.Popen[bytes]]) -> str | None:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    initdb = shutil.which("initdb", path=os.pathsep.join([*map(str, versions), os.environ["PATH"]]))
    if initdb is None:
        return None
    directory.mkdir()
    user = _owned(directory, "postgres")
    subprocess.run(
        [initdb, "-D", directory, "-A", "trust", "-U", "postgres", "--no-sync"],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd="/",
        user=user,
    )
    port = free_port()
    options = [word for option in POSTGRES for word in ("-c", option)]
    server = [str(Path(initdb).with_name("postgres")), "-D", str(directory), "-p", str(port)]
    _start([*server, "-k", str(directory), *options], directory, user, port, started)
    return f"postgres://postgres@127.0.0.1:{port}/idgen"


def _mariadb(directory: Path, started: list[subprocess.Popen[bytes]]) -> str | None:
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    server, install = (shutil.which(name, path=path) for name in ("mariadbd", "mariadb-install-db"))
    if server is None or install is None:
        return None
    # A starting server removes temporary tables of others from the directory that they share.
    temporary = Path(f"{directory}-tmp")
    for each in (directory, temporary):
        each.mkdir()
        user = _owned(each, "mysql")
    files = f"--datadir={directory}"
    subprocess.run(
        [install, "--no-defaults", files, "--auth-root-authentication-method=normal"],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(temporary)},
        user=user,
    )
    port = free_port()
    where = [
        files,
        f"--tmpdir={temporary}",
        f"--socket={directory}/s",
        f"--pid-file={directory}/pid",
    ]
    _start([server, *MARIADB, *where, f"--port={port}"], directory, user, port, started)
    return f"mysql://root@127.0.0.1:{port}/idgen"


def _owned(directory: Path, user: str) -> str | None:
    """Give it to ``user``, as whom a server has to run that refuses to run as root."""
    if os.geteuid() != 0:
        return None
    owner = pwd.getpwnam(user)
    os.chown(directory, owner.pw_uid, owner.pw_gid)
    return user


def _start(
    command: list[str],
    directory: Path,
    user: str | None,
    port: int,
    started: list[subprocess.Popen[bytes]],
) -> None:
    log = Path(f"{directory}.log")
    with log.open("wb") as output:
        started.append(
            subprocess.Popen(
                command, cwd="/", user=user, stdout=output, stderr=output, start_new_session=True
            )
        )
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and started[-1].poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"{command[0]} did not start:\n{log.read_text()}")


if __name__ == "__main__":
    if not sys.argv[1:]:
        raise SystemExit(__doc__)
    raise SystemExit(main(sys.argv[1:]))
