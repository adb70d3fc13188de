"""The backend that a program names. Each is imported when it is chosen: the local one needs no Spark."""

from __future__ import annotations

from typing import Any

from transom.backends.base import Backend
from transom.errors import SettingError, near_miss
from transom.extras import extra_needed

BACKENDS = ("spark", "local")


def choose_backend(backend: str | Backend, spark: Any = None, limits: Any = None) -> Backend:
    """A backend by name, or the one given; `spark` is a session and `limits` are the `Limits` of the Spark backend.

    >>> choose_backend("local").name
    'local'
    """
    if spark is not None and backend != "spark":
        raise SettingError(f"a Spark session is for the Spark backend, not for {backend!r}")
    if isinstance(backend, Backend):
        return backend
    if backend == "spark":
        with extra_needed("the Spark backend", "; Engine(backend='local') does without"):
            from transom.backends.spark.backend import SparkBackend

        return SparkBackend(spark, limits)
    if backend == "local":
        from transom.backends.local.backend import LocalBackend

        return LocalBackend()
    raise SettingError(f"unknown backend {backend!r}: spark or local{near_miss(str(backend), BACKENDS)}")
