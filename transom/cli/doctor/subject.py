"""What `transom doctor` looks at: the installation, and a pipeline file, a checkpoint and a port if they are given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transom.cli.pipeline import Pipeline, load_pipeline
from transom.errors import TransomError


@dataclass(frozen=True)
class DoctorSubject:
    """What to look at. `failure` is why the pipeline file can't be read."""

    file: Path | None = None
    pipeline: Pipeline | None = None
    failure: str | None = None
    checkpoint: str | None = None
    port: int | None = None

    @classmethod
    def of(cls, file: Path | None, checkpoint: str | None, port: int | None) -> DoctorSubject:
        """The subject with the content of the pipeline file; options override what the file says."""
        if file is None:
            return cls(checkpoint=checkpoint, port=port)
        try:
            pipeline = load_pipeline(file, served=True)
        except TransomError as error:
            return cls(file, None, str(error), checkpoint, port)
        return cls(file, pipeline, None, checkpoint or pipeline.engine.get("checkpoint"), port)

    @property
    def needs_spark(self) -> bool:
        """Whether the pipeline runs on Spark, which is the default."""
        return self.pipeline is None or self.pipeline.engine.get("backend", "spark") == "spark"
