# SPDX-License-Identifier: Apache-2.0
"""Makes a virtual environment a ROS 2 one: ROS 2 from wheels and the messages of test/interfaces, compiled into it.

    python3 -m venv .venv-test && .venv-test/bin/python test/ros_environment.py .venv-test

VENV/newer is a prefix of its own with a ModelInfo that differs, for tests of types that do not match.
A second run does nothing while its inputs are the same. Needs gcc, g++ and the headers of Python from the system.
Exit code 0: ready; 1: a step failed, its last lines are shown; 2: something is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
INTERFACES = HERE / "interfaces"
PACKAGES = ("edgefirst_msgs", "ffmpeg_image_transport_msgs", "foxglove_msgs")
STAMP = "ros-environment.stamp"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("venv", type=Path, help="the virtual environment, which must exist")
    arguments.add_argument("--distro", choices=["kilted", "jazzy"], default="kilted")
    given = arguments.parse_args()
    venv: Path = given.venv.absolute()
    python = venv / "bin" / "python"
    try:
        if not python.exists():
            raise Missing(f"{venv} is not a virtual environment; make it with: python3 -m venv {given.venv}")
        environment = clean_environment(venv)
        stamp = f"{given.distro} {inputs(given.distro, python, environment)}\n"
        made = (venv / STAMP).read_text() if (venv / STAMP).exists() else ""
        if made == stamp:
            print(f"ROS 2 {given.distro} in {venv} is up to date")
            return 0
        if made and not made.startswith(given.distro):
            raise Missing(f"{venv} was made for ROS 2 {made.split()[0]}; remove it to make it for {given.distro}")
        require_system(python, environment)
        (venv / STAMP).unlink(missing_ok=True)
        install_wheels(given.distro, python, environment)
        for package in PACKAGES:
            build(package, venv, venv, environment)
        build("newer/edgefirst_msgs", venv, venv / "newer", environment)
        check(python, environment)
        (venv / STAMP).write_text(stamp)
    except Missing as missing:
        print(f"ROS 2 test environment: {missing}", file=sys.stderr)
        return 2
    except Failed as failed:
        print(f"ROS 2 test environment: {failed}", file=sys.stderr)
        return 1
    return 0


class Missing(Exception):
    """Something this machine or the command line does not have."""


class Failed(Exception):
    """A step that ended with an error."""


def clean_environment(venv: Path) -> dict[str, str]:
    """The environment for programs of `venv`, with nothing of another ROS 2 or of the wheels' start-up hook in it.

    The wheels start Python a second time with LD_LIBRARY_PATH and a variable that says so; a child that inherits
    that variable would get the libraries of its parent's environment.
    """
    foreign = ("LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "_ROS_WHEELS_BOOTSTRAP_COMPLETE")
    kept = {k: v for k, v in os.environ.items() if k not in foreign and not k.startswith(("AMENT_", "COLCON_", "ROS_"))}
    kept["PATH"] = f"{venv / 'bin'}{os.pathsep}{kept.get('PATH', os.defpath)}"
    kept["AMENT_PREFIX_PATH"] = kept["CMAKE_PREFIX_PATH"] = str(venv)
    return kept


def inputs(distro: str, python: Path, environment: dict[str, str]) -> str:
    """Hash of everything the result depends on: this file, the pins, the interfaces, the place and the Python."""
    version = run("ask Python for its version", [str(python), "-VV"], environment)
    digest = hashlib.sha256(f"{python}\n{version}\n".encode())
    files = [Path(__file__), requirements(distro), *sorted(p for p in INTERFACES.rglob("*") if p.is_file())]
    for file in files:
        digest.update(f"{file.name}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def requirements(distro: str) -> Path:
    return HERE / f"ros-{distro}.txt"


def require_system(python: Path, environment: dict[str, str]) -> None:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise Missing(f"the wheels are for Linux on x86-64, this is {platform.system()} on {platform.machine()}")
    for compiler in (os.environ.get("CC", "gcc"), os.environ.get("CXX", "g++")):
        if shutil.which(compiler) is None:
            raise Missing(f"{compiler} not found; on Debian and Ubuntu: sudo apt install gcc g++")
    question = "import sysconfig, sys; print(sys.version_info[:2] >= (3, 10), sysconfig.get_path('include'))"
    new_enough, headers = run("ask Python for its headers", [str(python), "-c", question], environment).split()
    if new_enough != "True":
        raise Missing(f"{python} is older than Python 3.10")
    if not (Path(headers) / "Python.h").exists():
        raise Missing(f"{headers}/Python.h not found; on Debian and Ubuntu: sudo apt install python3-dev")


def install_wheels(distro: str, python: Path, environment: dict[str, str]) -> None:
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if uv := environment.get("UV"):
        pip = [uv, "pip", "install", "--quiet", "--python", str(python)]
    run(f"install ROS 2 {distro}", [*pip, "-r", str(requirements(distro))], environment)


def build(package: str, venv: Path, prefix: Path, environment: dict[str, str]) -> None:
    """Compiles a message package with what is in `venv` and installs it into `prefix`, an ament prefix like `venv`."""
    with tempfile.TemporaryDirectory(prefix="interfaces-") as work:
        configure = [
            *("cmake", "-G", "Ninja", "-S", str(INTERFACES / package), "-B", work),
            f"-DCMAKE_INSTALL_PREFIX={prefix}",
            f"-DPython3_ROOT_DIR={venv}",
            "-DPython3_FIND_VIRTUALENV=ONLY",
            f"-DCMAKE_PROJECT_INCLUDE={INTERFACES / 'wheel_includes.cmake'}",
            "-DBUILD_TESTING=OFF",
        ]
        run(f"configure {package}", configure, environment)
        run(f"build {package}", ["cmake", "--build", work, "--target", "install"], environment)


def check(python: Path, environment: dict[str, str]) -> None:
    modules = ", ".join(["rclpy", *(f"{package}.msg" for package in PACKAGES)])
    bare = {"PATH": environment["PATH"], "HOME": environment.get("HOME", "/")}
    run("import the messages", [str(python), "-c", f"import {modules}"], bare)


def run(step: str, command: list[str], environment: dict[str, str]) -> str:
    """What a command prints; says how long it took when that is worth saying.

    Raises: Failed with its last 40 lines.
    """
    began = time.monotonic()
    done = subprocess.run(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-40:])
        raise Failed(f"could not {step}:\n{tail}\n({' '.join(command)}: exit code {done.returncode})")
    if (took := time.monotonic() - began) > 0.5:
        print(f"{step}: {took:.1f} s", flush=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
