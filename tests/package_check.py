"""``python -m tests.package_check``: build the wheel and the sdist, and use them as a user would.

Each is installed into a clean environment of its own, outside of the checkout: a project that
``startproject`` makes saves a row, and the client works where there is no Django.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "django_idgen"

MODELS = """
from django.db import models
from django_idgen.fields import SegmentIdField, SnowflakeField

class Order(models.Model):
    id = SnowflakeField(primary_key=True)

class Parcel(models.Model):
    id = SegmentIdField(primary_key=True)
"""
SAVE = """
from app.models import Order, Parcel
from django.test import Client
assert Order.objects.create().pk > 10**15
assert [Parcel.objects.create().pk for _ in range(3)] == [1, 2, 3]
"""
WITHOUT_DJANGO = """
import importlib.util
assert importlib.util.find_spec("django") is None
from django_idgen.client import Client
Client("http://127.0.0.1:1/idgen/", token="unused").close()
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        run(sys.executable, "-m", "build", "--installer", "uv", "--outdir", str(work), str(ROOT))
        (wheel,), (sdist,) = work.glob("*.whl"), work.glob("*.tar.gz")
        run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
        check_contents(wheel)
        for built in (wheel, sdist):
            check_project(work / built.suffix.strip("."), built)
        check_client(work / "client", wheel)
    print("The wheel and the sdist work.")


def check_contents(wheel: Path) -> None:
    """All files of the package are in the wheel, and no others."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {each for each in archive.namelist() if ".dist-info/" not in each}
    wanted = {
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    if packed != wanted:
        raise SystemExit(f"The wheel lacks or adds: {sorted(packed ^ wanted)}")


def check_project(folder: Path, built: Path) -> None:
    """A fresh project migrates, and both fields fill its keys."""
    python = str(folder / "bin" / "python")
    run("uv", "venv", "--quiet", "--python", sys.executable, str(folder))
    run("uv", "pip", "install", "--quiet", "--python", python, str(built))
    project = folder / "project"
    project.mkdir()
    run(python, "-m", "django", "startproject", "site_", str(project))
    run(python, "manage.py", "startapp", "app", cwd=project)
    settings = project / "site_" / "settings.py"
    settings.write_text(f"{settings.read_text()}\nINSTALLED_APPS += ['django_idgen', 'app']\n")
    (project / "app" / "models.py").write_text(MODELS)
    for command in (["makemigrations", "app"], ["migrate"], ["check", "--fail-level", "WARNING"]):
        run(python, "-W", "error", "manage.py", *command, cwd=project)
    run(python, "manage.py", "shell", "-c", SAVE, cwd=project)


def check_client(folder: Path, wheel: Path) -> None:
    """The documented lines of pip install the client without Django."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    run(python, "-m", "pip", "install", "-q", "--no-deps", str(wheel))
    run(python, "-m", "pip", "install", "-q", "httpx")
    run(python, "-W", "error", "-c", WITHOUT_DJANGO, cwd=folder)


def run(*command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
