"""What `headrace validate` and `apply` begin with: a file's materializations, each asked of its connector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.config import HeadraceConfig, Part, load_config
from headrace.errors import ConfigError, HeadraceError, SchemaError
from headrace.pipeline.guarantee import Compiled, compile_guarantee, guarantee_problem
from headrace.pipeline.planning import Planned, plan
from headrace.pipeline.reachability import unreachable
from headrace.pipeline.settings import MaterializationSettings, PipelineSettings

# So begins what our connectors say of the endpoint's configuration.
_OF_ENDPOINT = "endpoint: "


@dataclass(frozen=True)
class Checked:
    config: HeadraceConfig
    settings: MaterializationSettings
    planned: Planned
    compiled: Compiled
    pipeline: PipelineSettings

    def unreachable(self) -> list[str]:
        """Sentences on what does not answer, or is somebody else's."""
        return list(unreachable(self.pipeline, self.settings, self.planned))

    def refuse_above(self) -> None:
        """Refuses a guarantee that cannot be had, at its line."""
        if problem := guarantee_problem(self.settings, self.compiled):
            raise self.config.error(("materializations", self.settings.name, "guarantee"), problem)


def check_materializations(file: Path, names: Sequence[str]) -> Iterator[Checked]:
    """Of these names, or all; one after the other."""
    config = load_config(file, Part.PIPELINE)
    pipeline = config.pipeline_settings(names=names)
    for settings in pipeline.materializations:
        try:
            planned = plan(settings, pipeline.catalog)
        except (ConfigError, SchemaError) as error:
            # The plan's own words, since the line and the key say which materialization it is.
            said = error.__cause__ if isinstance(error.__cause__, HeadraceError) else error
            path: tuple[str, ...] = ("materializations", settings.name)
            if said.message.startswith(_OF_ENDPOINT):
                path += ("config",)
            raise config.error(path, said.message.removeprefix(_OF_ENDPOINT)) from error
        compiled = compile_guarantee(pipeline, settings, planned.validated)
        yield Checked(config, settings, planned, compiled, pipeline)
