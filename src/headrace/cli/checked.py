"""The first step of `headrace validate` and `apply`: checks each materialization of a file with its
connector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.config import HeadraceConfig, Part, load_config
from headrace.errors import ConfigError, HeadraceError, SchemaError
from headrace.pipeline.guarantee import Compiled, compile_guarantee, guarantee_problem
from headrace.pipeline.plan import Planned, plan
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
        """Returns sentences about everything that does not respond, or belongs to somebody else."""
        return list(unreachable(self.pipeline, self.settings, self.planned))

    def refuse_above(self) -> None:
        """Refuses a guarantee that cannot be kept, at its line in the file."""
        if problem := guarantee_problem(self.settings, self.compiled):
            raise self.config.error(("materializations", self.settings.name, "guarantee"), problem)


def check_materializations(file: Path, names: Sequence[str]) -> Iterator[Checked]:
    """Checks the materializations with these names, or all of them, one after the other."""
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
