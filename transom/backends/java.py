"""The Java that Spark runs on: which one it is, and how to get one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from transom.errors import SettingError

OLDEST_JAVA = 17
INSTALL_JAVA = """Spark runs on Java, version 17 or later. To install it:
  Debian, Ubuntu   sudo apt install openjdk-17-jre-headless
  macOS            brew install openjdk@17
  Windows          winget install Microsoft.OpenJDK.17
or set JAVA_HOME to the directory of one that is installed."""


@dataclass(frozen=True)
class InstalledJava:
    """A Java that Spark can run on."""

    path: str
    version: int


def check_java() -> InstalledJava:
    """The Java that Spark would use; SettingError says what is missing, and how to get it."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME is {home}, and there is no bin/java in it" if home else "no java on the PATH"
        raise SettingError(f"Java is missing: {where}.\n{INSTALL_JAVA}")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True)
    version = java_version(answer.stderr + answer.stdout)
    if answer.returncode != 0 or version is None:  # macOS has a java that only says there is none
        raise SettingError(f"Java is missing: {java} does not run.\n{INSTALL_JAVA}")
    if version < OLDEST_JAVA:
        raise SettingError(f"Java is too old: {java} is version {version}.\n{INSTALL_JAVA}")
    return InstalledJava(java, version)


def java_version(text: str) -> int | None:
    """The major version in what `java -version` prints.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_392"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None
