"""Computes what a materialization guarantees, before it starts: as much as its weakest link.

The links are its sources, its endpoint, its sinks, the fence, and the state (docs/guarantees.md). Each is
judged by what a restart really uses: how rows are replayed, what they are kept in, and what that survives.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from headrace.errors import ConfigError
from headrace.ingest.iceberg.settings import kept_on_host
from headrace.pipeline.settings import (
    FILE_FORMATS,
    CollectionSource,
    FormatSource,
    Guarantee,
    KafkaSource,
    MaterializationSettings,
    PipelineSettings,
    Profile,
    SinkSettings,
    Source,
)
from headrace.pipeline.sources.kafka_starts import (
    begins_at_end,
    fails_on_loss,
    keeps_start,
    starting_offsets,
)
from headrace.pipeline.state_paths import is_folder
from headrace.protocol.messages import Delivery, Durability, Survival, Validated

_STRENGTH = list(Guarantee)

_FORMATS = {
    **dict.fromkeys(("kafka", "iceberg", "delta"), (Guarantee.EXACTLY_ONCE, "offsets are replayed")),
    **dict.fromkeys(
        FILE_FORMATS,
        (Guarantee.AT_LEAST_ONCE, "which files were read is known to Spark's checkpoint alone"),
    ),
    **dict.fromkeys(
        ("rate", "rate-micro-batch"),
        (Guarantee.AT_LEAST_ONCE, "rows are made up anew where Spark's checkpoint is lost"),
    ),
    "batch": (Guarantee.EXACTLY_ONCE, "a batch that is given again is not written again"),
    "socket": (Guarantee.AT_MOST_ONCE, "what was read cannot be read again"),
}
_UNKNOWN_FORMAT = (Guarantee.AT_LEAST_ONCE, "whether offsets are replayed is not known of this format")

_ENDPOINT = {
    Delivery.REPEATED: (Guarantee.AT_LEAST_ONCE, "a transaction that is sent again takes effect again"),
    Delivery.REWRITTEN: (
        Guarantee.EFFECTIVELY_ONCE,
        "a transaction that is sent again writes the same values again",
    ),
    Delivery.STAGED: (Guarantee.EXACTLY_ONCE, "what is staged is published once"),
    Delivery.TRANSACTIONAL: (Guarantee.EXACTLY_ONCE, "checkpoint and rows are committed as one"),
}
_SINK = "what is prepared is committed once, when the epoch is decided"
_KEPT_BY = {
    "iceberg": "tables of a catalog",
    "kafka": "a topic",
    **dict.fromkeys(("parquet", "delta", "hudi"), "object storage"),
}
"""Our own formats, where they are not on the host; what others keep rows in is not known."""
_ENOUGH = {
    Profile.DEV_LOCAL: (Survival.UNSAID, Survival.PROCESS, Survival.HOST),
    Profile.SINGLE_NODE_DURABLE: (Survival.UNSAID, Survival.PROCESS, Survival.HOST),
    Profile.DISTRIBUTED_DURABLE: (Survival.HOST,),
}
_SURVIVED = {Survival.PROCESS: "the process", Survival.HOST: "this host"}
_FENCE = {
    Delivery.REPEATED: (Guarantee.AT_LEAST_ONCE, "the endpoint has none: a task that was replaced may write"),
    Delivery.REWRITTEN: (Guarantee.EXACTLY_ONCE, "the endpoint's: a task that was replaced writes no more"),
    Delivery.STAGED: (Guarantee.EXACTLY_ONCE, "the recovery log's: only what it decided is published"),
    Delivery.TRANSACTIONAL: (
        Guarantee.EXACTLY_ONCE,
        "the endpoint's: a task that was replaced commits no more",
    ),
}


@dataclass(frozen=True)
class Reason:
    """A link of the chain, and what it allows."""

    link: str
    guarantee: Guarantee
    why: str

    def __str__(self) -> str:
        return f"{self.link}: {self.guarantee} ({self.why})"


@dataclass(frozen=True)
class Compiled:
    guarantee: Guarantee
    reasons: tuple[Reason, ...]

    @property
    def weakest(self) -> Reason:
        """The first of the links that allow no more."""
        return min(self.reasons, key=lambda reason: _STRENGTH.index(reason.guarantee))


def compile_guarantee(
    pipeline: PipelineSettings, settings: MaterializationSettings, validated: Validated
) -> Compiled:
    """Refuses a state that the profile does not go with."""
    if problem := state_problem(pipeline.profile, pipeline.state_url):
        raise ConfigError(f"state: {problem}")
    for binding in settings.bindings:
        _refuse_files(pipeline.state_url, binding.source)
    deliveries = [binding.delivery for binding in validated.bindings]
    weakest = min(deliveries, key=list(Delivery).index)
    # What sinks have staged is known to the recovery log alone.
    fenced = min(weakest, Delivery.STAGED, key=list(Delivery).index) if settings.sinks else weakest
    sources = dict.fromkeys(_source(pipeline, binding.source) for binding in settings.bindings)
    reasons = (
        *sources,
        *([_endpoint(pipeline.profile, settings, validated, weakest)] if settings.connector else ()),
        *(_sink(pipeline, sink) for sink in settings.sinks),
        Reason("fence", *_FENCE[fenced]),
        _profile(pipeline, settings, fenced),
    )
    return Compiled(min((reason.guarantee for reason in reasons), key=_STRENGTH.index), reasons)


def without_topic_ids(compiled: Compiled, sources: Collection[Source]) -> Compiled:
    """Lowers the guarantee for sources of Kafka whose topic ids are unknown, which only brokers can tell."""
    if not sources:
        return compiled
    why = "there are no topic ids to compare: a topic that is deleted and created again is taken for the same"
    links = {_link(source) for source in sources}
    lowered = tuple(
        replace(reason, guarantee=Guarantee.AT_MOST_ONCE, why=why) if reason.link in links else reason
        for reason in compiled.reasons
    )
    return Compiled(min((reason.guarantee for reason in lowered), key=_STRENGTH.index), lowered)


def refuse_above(settings: MaterializationSettings, compiled: Compiled) -> None:
    """Refuses a configured guarantee that is above what can be had."""
    if problem := guarantee_problem(settings, compiled):
        raise ConfigError(f"materialization {settings.name!r}: guarantee: {problem}")


def guarantee_problem(settings: MaterializationSettings, compiled: Compiled) -> str:
    """Why the configured guarantee cannot be had; empty if it can, or none is configured."""
    wanted = settings.guarantee
    if wanted is None or _STRENGTH.index(wanted) <= _STRENGTH.index(compiled.guarantee):
        return ""
    return f"{wanted} cannot be had, since {compiled.weakest}: ask for less, or change that"


def state_problem(profile: Profile, url: str) -> str:
    """Why state at a URL cannot survive what the profile says that it does; empty if it can."""
    if profile is not Profile.DEV_LOCAL and url.startswith("memory:"):
        return (
            "memory does not survive the process: name a folder or a bucket, or choose the profile dev-local"
        )
    if profile is Profile.DISTRIBUTED_DURABLE and url.startswith("file:"):
        return "a folder does not survive its host: name a bucket, or choose the profile single-node-durable"
    return ""


def _refuse_files(state: str, source: Source) -> None:
    """Spark's checkpoint folder can be made anew but for what a source of files keeps in it."""
    if isinstance(source, FormatSource) and source.format.lower() in FILE_FORMATS and _is_bucket(state):
        raise ConfigError(
            f"source {source.format}: which files were read is known to Spark's checkpoint folder alone, and "
            f"with state in {state} there is none that lasts: name a folder for `state`, or write the files "
            "to a collection or a topic first"
        )


def _is_bucket(state: str) -> bool:
    return not state.startswith(("file:", "memory:"))


def _link(source: Source) -> str:
    match source:
        case CollectionSource(collection):
            return f"source collection {collection}"
        case KafkaSource(topic=topic):
            return f"source kafka {topic}"
        case FormatSource(name):
            return f"source {name}"


def _source(pipeline: PipelineSettings, source: Source) -> Reason:
    link = _link(source)
    match source:
        case CollectionSource():
            on_host = kept_on_host(pipeline.catalog) if pipeline.catalog else ""
            if on_host and pipeline.profile is Profile.DISTRIBUTED_DURABLE:
                return Reason(link, Guarantee.AT_MOST_ONCE, f"snapshots are replayed; {_too_little(on_host)}")
            return Reason(link, Guarantee.EXACTLY_ONCE, "snapshots are replayed")
        case KafkaSource():
            return Reason(link, Guarantee.EXACTLY_ONCE, "offsets are replayed")
        case FormatSource(name, order_by=ordered_by):
            if not fails_on_loss(source):
                why = "failOnDataLoss is false: it goes on where rows are gone"
                return Reason(link, Guarantee.AT_MOST_ONCE, why)
            is_lost = _is_bucket(pipeline.state_url) and not keeps_start(source)
            if _begins_at_the_end(source) and is_lost:
                why = "it begins at its end, and only Spark's checkpoint folder would keep where that was"
                return Reason(link, Guarantee.AT_MOST_ONCE, why)
            guarantee, why = _FORMATS.get(name.lower(), _UNKNOWN_FORMAT)
            if ordered_by:
                why += f"; within an epoch the last by {', '.join(ordered_by)} wins, and a later epoch always"
            return Reason(link, guarantee, why)


def _endpoint(
    profile: Profile, settings: MaterializationSettings, validated: Validated, weakest: Delivery
) -> Reason:
    guarantee, why = _ENDPOINT[weakest]
    kept = validated.durability
    if kept.survives not in _ENOUGH[profile]:
        guarantee = Guarantee.AT_MOST_ONCE
    said = [why, _kept(kept, profile)]
    if any(binding.target is None for binding in validated.bindings):
        said.append("it cannot be told whose a target is, so that another's is not refused")
    if weakest is Delivery.TRANSACTIONAL and validated.runtime_checkpoints is None:
        said.append("it has to be opened to be asked what it has")
    return Reason(f"endpoint {settings.connector}", guarantee, "; ".join(said))


def _kept(kept: Durability, profile: Profile) -> str:
    if kept.survives in _ENOUGH[profile] and kept.survives is not Survival.UNSAID:
        return f"kept in {kept.mechanism}, which survives {_SURVIVED[kept.survives]}"
    if kept.survives is Survival.PROCESS:
        return _too_little(kept.mechanism)
    if kept.survives is Survival.NOTHING:
        return f"kept in {kept.mechanism}, which may lose rows in a crash"
    return "the connector does not say what rows survive"


def _too_little(mechanism: str) -> str:
    """Names what the profile `distributed-durable` cannot count on."""
    return f"kept in {mechanism}, which does not survive it"


def _sink(pipeline: PipelineSettings, sink: SinkSettings) -> Reason:
    link = f"sink {sink.name} ({sink.format})"
    in_folder = any(target and is_folder(sink.format, target.location) for target in sink.targets)
    on_host = "a folder on this host" if in_folder else ""
    if sink.format == "iceberg" and pipeline.catalog is not None:
        on_host = kept_on_host(pipeline.catalog)
    if sink.shared or not on_host:
        place = "storage that hosts share" if sink.shared else _KEPT_BY.get(sink.format, "")
        kept = f"; kept in {place}, which survives this host" if place else ""
        return Reason(link, Guarantee.EXACTLY_ONCE, _SINK + kept)
    if pipeline.profile is Profile.DISTRIBUTED_DURABLE:
        advice = ": name a bucket, or write `shared: true` if all hosts have it" if in_folder else ""
        return Reason(link, Guarantee.AT_MOST_ONCE, f"{_SINK}; {_too_little(on_host)}{advice}")
    return Reason(link, Guarantee.EXACTLY_ONCE, f"{_SINK}; kept in {on_host}, which survives the process")


def _profile(pipeline: PipelineSettings, settings: MaterializationSettings, delivery: Delivery) -> Reason:
    link = f"profile {pipeline.profile}"
    if pipeline.profile is not Profile.DEV_LOCAL:
        place = "object storage" if _is_bucket(pipeline.state_url) else "a folder on this host"
        survives = "this host" if _is_bucket(pipeline.state_url) else "the process"
        return Reason(
            link, Guarantee.EXACTLY_ONCE, f"the recovery log is kept in {place}, which survives {survives}"
        )
    if delivery is Delivery.TRANSACTIONAL:
        why = "the state survives nothing, and is made anew from the endpoint's checkpoint"
        return Reason(link, Guarantee.EXACTLY_ONCE, why)
    for binding in settings.bindings:
        if _begins_at_the_end(binding.source):
            why = "the state survives nothing, and a source then begins at its end"
            return Reason(link, Guarantee.AT_MOST_ONCE, why)
    if settings.sinks:
        why = "the state survives nothing, and is made anew from the sinks if they stand at one epoch"
        return Reason(link, Guarantee.AT_LEAST_ONCE, why)
    why = "the state survives nothing, and everything is then written again"
    return Reason(link, Guarantee.AT_LEAST_ONCE, why)


def _begins_at_the_end(source: Source) -> bool:
    """Whether a query without a checkpoint leaves out what is there."""
    match source:
        case KafkaSource(starting_offsets=starting):
            return begins_at_end(starting)
        case CollectionSource():
            return False
        case FormatSource(name, options) if name.lower() == "kafka":
            if starting := starting_offsets(source):
                return begins_at_end(starting)
            return _option(options, "startingOffsetsByTimestampStrategy") == "latest"
        case FormatSource(name, options):
            return name.lower() == "delta" and _option(options, "startingVersion") == "latest"


def _option(options: Mapping[str, str], name: str) -> str:
    """Spark does not look at the case of an option's name."""
    return {key.lower(): value.lower() for key, value in options.items()}.get(name.lower(), "")
