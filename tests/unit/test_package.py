"""What is shipped: the wheel is built and opened, and what is in it works by itself."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import anarchon

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


def declared() -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    return config


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: a build leaves files beside its sources."""
    source = tmp_path_factory.mktemp("source")
    for file in ("pyproject.toml", "setup.py", "setup.cfg", "MANIFEST.in", "README.rst", "LICENSE"):
        shutil.copy(ROOT / file, source)
    shutil.copytree(ROOT / "anarchon", source / "anarchon", ignore=LEFT_OUT)
    build = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    built = source / "wheels"
    done = subprocess.run([sys.executable, "-c", build, built], cwd=source, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return built / done.stdout.split()[-1]


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    """Those that are not Python most of all: forgotten, they are missed only on somebody else's machine."""
    written = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "anarchon").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {Path(file).suffix for file in written} == {".py", ".lua", ".sql", ".typed", ".html", ".css"}
    with zipfile.ZipFile(wheel) as opened:
        packed = {name for name in opened.namelist() if ".dist-info/" not in name}
    assert packed == written


def test_the_wheel_carries_its_licence_version_and_command(wheel: Path) -> None:
    version = declared()["metadata"]["version"]
    info = f"anarchon-{version}.dist-info"
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        about = opened.read(f"{info}/METADATA").decode()
        commands = opened.read(f"{info}/entry_points.txt").decode()
    assert any(name.startswith(f"{info}/") and name.endswith("LICENSE") for name in names)
    assert f"\nVersion: {version}\n" in about
    assert "\nRequires-Python: >=3.10\n" in about
    assert "anarchon = anarchon.cli:main" in commands


def test_the_wheel_works_by_itself(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(tmp_path / "site")
    # Each backend reads its data files when it is loaded.
    use = (
        "import anarchon, anarchon.backends.redis, anarchon.backends.sqlite, anarchon.backends.memory, anarchon.cli;"
        "print(anarchon.__file__, anarchon.__version__)"
    )
    alone = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", use],
        cwd=tmp_path,
        env=alone,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    file, version = done.stdout.split()
    assert Path(file).is_relative_to(tmp_path / "site")
    assert version == declared()["metadata"]["version"]


def test_the_version_stands_in_one_place() -> None:
    assert anarchon.__version__ == metadata.version("anarchon")
    version = declared()["metadata"]["version"]
    told = [path for path in (ROOT / "anarchon").rglob("*.py") if version in path.read_text(encoding="utf-8")]
    assert told == []


def test_all_but_what_builds_the_package_is_declared_in_setup_cfg() -> None:
    """Two declarations of one thing would disagree some day."""
    declares = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r"^\[.*", declares, re.MULTILINE) == ["[build-system]"]
    # The tests build the wheel with what they have installed, and an install with what is asked for here.
    [builder] = re.findall(r'requires = \["(.+)"\]', declares)
    assert builder in declared()["options.extras_require"]["test"].split()


def test_the_public_names_are_sorted_and_there() -> None:
    assert anarchon.__all__ == sorted(anarchon.__all__)
    assert [name for name in anarchon.__all__ if not hasattr(anarchon, name)] == []


def test_importing_the_package_loads_no_store_driver() -> None:
    """Who keeps jobs in SQLite should not pay for redis-py."""
    ask = "import sys, anarchon; print('redis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "False", done.stderr


def test_what_runs_jobs_is_loaded_with_the_first_job_and_so_before_any_start() -> None:
    """
    1. a thread starts the scheduler, and loads what is not loaded yet
    2. another one forks: in the child nobody ever finishes that, and its start would wait for ever
    """
    ask = (
        "import sys, anarchon; scheduler = anarchon.Scheduler('memory://');"
        "loaded = lambda: 'anarchon.engine' in sys.modules;"
        "before = loaded(); scheduler.every('x', '1h', print); print(before, loaded())"
    )
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("False True\n", "")


def test_a_connection_to_redis_loads_nothing_that_was_not_loaded_with_the_backend() -> None:
    """
    1. a thread makes its first connection, and redis-py, or Python for it, loads what is not loaded yet
    2. another one forks: the child's first connection waits for ever for that to be loaded
    """
    ask = (
        "import sys, anarchon; backend = anarchon.RedisBackend('redis://127.0.0.1:1');"
        "loaded = set(sys.modules); calls = (lambda: backend.time('x'), lambda: backend.forget('x'))\n"
        "for call in calls:\n"
        "    try: call()\n"
        "    except anarchon.BackendError: pass\n"
        "print(*sorted(set(sys.modules) - loaded))"
    )
    done = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (done.stdout.split(), done.stderr) == ([], "")


def test_the_checks_run_the_tests_by_the_command_that_the_readme_gives() -> None:
    command = "python3 -m venv .venv && .venv/bin/pip install '.[test]' && .venv/bin/pytest"
    assert f"    {command}\n" in (ROOT / "README.rst").read_text(encoding="utf-8")
    checks = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert checks[-1] == command
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
