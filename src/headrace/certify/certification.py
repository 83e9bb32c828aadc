"""A whole certification: every cell of the matrix, every defect, and the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

from headrace.certify.chain import Chain, Surroundings
from headrace.certify.drawing import drawn_rounds
from headrace.certify.endpoints import Endpoints
from headrace.certify.feeds import Feed
from headrace.certify.ingest.certification import (
    CELLS,
    certify_ingest,
    scenarios_of_ingest,
    soak_ingest,
)
from headrace.certify.ingest.scenarios import Scenario as IngestScenario
from headrace.certify.lanes import Lane
from headrace.certify.meanings import MEANINGS
from headrace.certify.memory import CELL as MEMORY
from headrace.certify.memory import certify_memory, seeded_memory
from headrace.certify.progress import Progress, Steps, Told
from headrace.certify.results import NOT_REMOVED, Cell, Mode, Report, Seeded
from headrace.certify.rounds import Round, rounds_of
from headrace.certify.scenarios import HOST_LOST, SCENARIOS, Between, Scenario
from headrace.certify.seeding import seeded
from headrace.certify.versions import versions
from headrace.errors import ConfigError, HeadraceError
from headrace.ingest.iceberg.tables import Tables
from headrace.pipeline.settings import Guarantee, Profile

# Elsewhere everything is tried; what a profile changes is what a start finds of the state.
_OF_PROFILE = {
    Profile.DEV_LOCAL: ("killed before the decision", "killed after the decision", "killed after commit"),
    Profile.DISTRIBUTED_DURABLE: (
        "killed in prepare",
        "killed before the decision",
        "killed after the decision",
        "killed in commit",
        "killed after commit",
        "killed in abort",
        "woken before the decision",
        "table shared",
        "host lost",
    ),
}

_INGEST_SOAKS = 0.2


@dataclass(frozen=True)
class Options:
    endpoints: Endpoints = field(default_factory=Endpoints)
    quick: bool = False
    scenarios: tuple[str, ...] = ()
    """Names; all if empty."""
    soak_minutes: float = 0.0
    seed: int = 0
    ingest: bool = True
    seeded: tuple[str, ...] = ()
    """Scenarios that were tried with their defects before."""
    held: frozenset[tuple[str, str]] = frozenset()
    """Names of cells, and scenarios that were shown in them before, and are left out."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """With which they were."""

    @property
    def mode(self) -> Mode:
        return Mode.SOAK if self.soak_minutes else Mode.QUICK if self.quick else Mode.FULL

    def chosen(self, profile: Profile) -> list[Scenario]:
        found = [*SCENARIOS, HOST_LOST]
        if profile in _OF_PROFILE:
            found = [one for one in found if one.name in _OF_PROFILE[profile]]
        else:
            found.remove(HOST_LOST)
        if self.quick:
            found = [one for one in found if one.is_quick]
        if self.scenarios:
            found = [one for one in found if one.name in self.scenarios]
        return found

    @property
    def soaked(self) -> list[Scenario | IngestScenario]:
        """What is drawn from. The clock, copies of endpoints, and other files are for all lanes at once."""
        alone = (Between.CLOCK_BACK, Between.RESTORED)
        usable = [one for one in SCENARIOS if one.between not in alone and not one.refusal]
        found = [*usable, *(scenarios_of_ingest(quick=False) if self.ingest else ())]
        return [one for one in found if not self.scenarios or one.name in self.scenarios]

    @property
    def ingest_scenarios(self) -> list[IngestScenario]:
        if not self.ingest or self.soak_minutes:
            return []
        found = scenarios_of_ingest(self.quick and not self.scenarios)
        found = [one for one in found if not self.scenarios or one.name in self.scenarios]
        return [
            one for one in found if not all((CELLS[tier].name, one.name) in self.held for tier in one.tiers)
        ]

    def check(self) -> None:
        for name in self.scenarios:
            if name not in MEANINGS:
                known = ", ".join(sorted(MEANINGS))
                raise ConfigError(f"there is no scenario {name!r}; there are: {known}")
        if self.soak_minutes and not self.soaked:
            raise ConfigError(f"--soak draws from other scenarios than {', '.join(self.scenarios)}")


class Certification:
    def __init__(self, folder: Path, options: Options, told: Told = lambda _text, _share: None) -> None:
        options.check()
        self._folder, self._options, self._told = folder, options, told
        bucket = options.endpoints.bucket
        self._bucket = bucket.below(f"headrace-certify-{uuid4().hex}") if bucket else None
        self._endpoints = replace(options.endpoints, bucket=self._bucket)
        self._cells: list[Cell] = []
        self._seeded: list[Seeded] = []
        self._unremoved: list[str] = []

    def run(self) -> Report:
        began, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
        found = versions() | self._check()
        for name, version in self._options.versions.items():
            if found.get(name, version) != version:
                raise ConfigError(
                    f"the earlier run had {name} {version}, and this one has {found[name]}: leave --add out, "
                    "or run both with the same"
                )
        parts = self._parts()
        progress = Progress(self._told, {name: weight for name, (weight, _) in parts.items()})
        for name, (_, run) in parts.items():
            run(progress.part(name))
        return Report(
            seed=self._options.seed,
            began=began,
            seconds=round(time.monotonic() - clock, 1),
            mode=self._options.mode,
            versions=found,
            cells=tuple(self._cells),
            seeded=tuple(self._seeded),
            notes=self._notes(),
        )

    def _check(self) -> dict[str, str]:
        """That every endpoint answers, before anything is begun; and what servers are there."""
        folder = self._folder / "check"
        folder.mkdir(parents=True)
        profile = Profile.SINGLE_NODE_DURABLE
        catalog = self._endpoints.catalog(profile, folder)
        found: dict[str, str] = {}
        if self._bucket is not None:
            self._bucket.look()
        if far := self._bucket and self._endpoints.catalog(Profile.DISTRIBUTED_DURABLE, folder):
            Tables(far).load("check")
        for target in self._endpoints.targets(profile, folder, catalog, quick=self._options.quick):
            target.check()
            found |= target.versions()
        return found

    def _parts(self) -> dict[str, tuple[float, Callable[[Steps], None]]]:
        """What is done, in this order, and how long it takes next to the others."""
        options = self._options
        if options.soak_minutes:
            return self._soaking()
        parts: dict[str, tuple[float, Callable[[Steps], None]]] = {}
        if some := options.ingest_scenarios:
            parts["ingest"] = (len(some) / 3, self._certify_ingest)
        for profile in self._endpoints.profiles():
            chosen = options.chosen(profile)
            if chosen and not (options.quick and profile is not Profile.SINGLE_NODE_DURABLE):
                parts[str(profile)] = (1 + len(chosen), partial(self._certify, profile))
        if self._endpoints.embedded and not (
            self._endpoints.only or options.scenarios or MEMORY.name in {name for name, _ in options.held}
        ):
            parts["memory"] = (0, self._certify_memory)
        if chosen := self._seedable():
            parts["with defects"] = (1 + len(chosen) / 2, self._seed)
        return parts

    def _seedable(self) -> list[Scenario]:
        profiles = [Profile.SINGLE_NODE_DURABLE] if self._options.quick else self._endpoints.profiles()
        chosen = [one for profile in profiles for one in self._options.chosen(profile)]
        return list({one.name: one for one in chosen if one.name not in self._options.seeded}.values())

    def _certify_ingest(self, steps: Steps) -> None:
        options = self._options
        cells, found = certify_ingest(
            self._folder / "ingest", options.seed, options.ingest_scenarios, options.quick, steps
        )
        self._cells += cells
        self._seeded += found

    def _certify_memory(self, steps: Steps) -> None:
        steps("given up at each step")
        self._cells.append(certify_memory(self._options.seed))
        self._seeded += seeded_memory()

    def _seed(self, steps: Steps) -> None:
        self._seeded += seeded(self._folder / "defects", self._seedable(), steps)

    def _certify(self, profile: Profile, steps: Steps) -> None:
        def trials(lanes: Sequence[Lane]) -> list[tuple[Lane, Scenario]]:
            return [
                (lane, one)
                for one in self._options.chosen(profile)
                for lane in lanes
                if _is_tried(one, lane) and (_cell(lane, profile).name, one.name) not in self._options.held
            ]

        def rounds(lanes: Sequence[Lane]) -> list[Round]:
            found = rounds_of(trials(lanes))
            steps.expect(1 + len(found))
            return found

        self._run(profile, rounds, steps, lambda lane: bool(trials([lane])))

    def _soaking(self) -> dict[str, tuple[float, Callable[[Steps], None]]]:
        """The ingest server has a part of the time, and pipelines have the rest."""
        seconds = 60 * self._options.soak_minutes
        some = [one for one in self._options.soaked if isinstance(one, IngestScenario)]
        others = [one for one in self._options.soaked if isinstance(one, Scenario)]
        share = 0.0 if not some else _INGEST_SOAKS if others else 1.0
        parts: dict[str, tuple[float, Callable[[Steps], None]]] = {}
        if some:
            parts["ingest"] = (share, partial(self._soak_ingest, some, share * seconds))
        if others:
            parts["pipelines"] = (1 - share, partial(self._soak, others, (1 - share) * seconds))
        return parts

    def _soak_ingest(self, scenarios: Sequence[IngestScenario], seconds: float, steps: Steps) -> None:
        self._cells += soak_ingest(self._folder / "ingest", self._options.seed, scenarios, seconds, steps)

    def _soak(self, scenarios: Sequence[Scenario], seconds: float, steps: Steps) -> None:
        began = time.monotonic()
        self._run(
            Profile.SINGLE_NODE_DURABLE,
            lambda lanes: drawn_rounds(lanes, scenarios, self._options.seed, began + seconds),
            lambda text: steps.at(text, (time.monotonic() - began) / seconds),
        )

    def _run(
        self,
        profile: Profile,
        rounds: Callable[[Sequence[Lane]], Iterable[Round]],
        told: Callable[[str], None],
        is_run: Callable[[Lane], bool] = lambda _: True,
    ) -> None:
        folder = self._folder / str(profile)
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        catalog = self._endpoints.catalog(profile, data)
        of_catalog = {"catalog": catalog.to_json()} if catalog else {}
        surroundings = Surroundings(folder, profile, {**self._state(profile), **of_catalog})
        targets = self._endpoints.targets(profile, folder / "endpoints", catalog, quick=self._options.quick)
        suffix = f"-{uuid4().hex[:6]}"
        feeds = self._endpoints.feeds(catalog)
        lanes = [Lane(feed, target, suffix) for feed in feeds for target in targets]
        with ExitStack() as stack:
            for target in targets:
                stack.enter_context(target.running())
            # Asked only now: some have their addresses while they run.
            lanes = [lane for lane in lanes if is_run(lane)]
            if not lanes:
                return
            stack.callback(self._remove, lanes, feeds)
            chain = Chain(surroundings, lanes, self._options.seed, told)
            chain.run(rounds(lanes))
        for lane in lanes:
            claimed = Guarantee(chain.guarantees.get(lane.name, Guarantee.AT_LEAST_ONCE))
            evidence = tuple(chain.evidence[lane.name])
            self._cells.append(replace(_cell(lane, profile), claimed=claimed, evidence=evidence))

    def _remove(self, lanes: Sequence[Lane], feeds: Sequence[Feed]) -> None:
        """Whatever cannot be is told, and is in the way of nothing else."""
        for lane in lanes:
            self._try_to(f"what {lane.name} has in {lane.target.name}", lambda one=lane: one.remove())  # type: ignore[misc]
        for feed in feeds:
            names = [lane.name for lane in lanes if lane.feed is feed]
            self._try_to(f"the source {feed.name}", lambda one=feed, of=names: one.remove(of))  # type: ignore[misc]
        if self._bucket is not None:
            self._try_to(self._bucket.url, self._bucket.empty)

    def _try_to(self, what: str, remove: Callable[[], None]) -> None:
        try:
            remove()
        except Exception as error:  # noqa: BLE001 - each endpoint has its own, and the evidence is more
            said = error.message if isinstance(error, HeadraceError) else repr(error)
            self._unremoved.append(f"{NOT_REMOVED}{what}: {said}")

    def _state(self, profile: Profile) -> dict[str, object]:
        if not _is_far(profile):
            return {}
        assert self._bucket is not None
        return {"state": {"url": f"{self._bucket.url}/state", "options": dict(self._bucket.options)}}

    def _notes(self) -> tuple[str, ...]:
        notes = list(self._unremoved)
        if self._bucket is None:
            notes.append("distributed-durable was not tried: it wants a bucket (--endpoint s3=...)")
        elif not self._bucket.has_catalog:
            notes.append(
                "collections and Iceberg tables were not tried with distributed-durable: they want a catalog "
                "that is not on this host (`catalog` of --endpoint s3=..., with its `type` and `uri`)"
            )
        if not self._endpoints.kafka:
            notes.append(
                "Kafka was not tried, as source or as sink: name brokers (--endpoint kafka=HOST:PORT)"
            )
        for one in self._endpoints.connectors:
            name = one["name"]
            notes.append(f"tables of connector {name} are left where it has put them: it removes none")
        return tuple(notes)


def _is_tried(scenario: Scenario, lane: Lane) -> bool:
    """All with one source, and with others those to which it matters."""
    return bool(scenario.arms(lane)) and (lane.feed.is_first or scenario.is_of_source)


def _cell(lane: Lane, profile: Profile) -> Cell:
    """Of which nothing is known yet."""
    return Cell(lane.feed.name, lane.target.name, str(profile), Guarantee.AT_LEAST_ONCE)


def _is_far(profile: Profile) -> bool:
    return profile is Profile.DISTRIBUTED_DURABLE
