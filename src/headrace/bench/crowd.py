"""Runs coalescing clients, in one process or several that begin together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from threading import Thread
from typing import Any

from headrace.bench.children import Child, Server, cpu_us_per_write
from headrace.bench.figures import Crowd, Tier
from headrace.errors import HeadraceError

OnProgress = Callable[[int], None]


def run_crowd(
    server: Server,
    collection: str,
    *,
    clients: int,
    writes: int,
    processes: int,
    payload: int,
    linger: float,
    tiers: Sequence[str],
    on_progress: OnProgress,
) -> Crowd:
    """`writes` are each client's."""
    shares = [clients // processes + (number < clients % processes) for number in range(processes)]
    command = {
        "url": server.url,
        "collection": collection,
        "writes": writes,
        "payload": payload,
        "linger": linger,
        "tiers": list(tiers),
    }
    with ExitStack() as stack:
        children = [
            stack.enter_context(Child("headrace.bench.coalescing_client", {**command, "clients": share}))
            for share in shares
            if share
        ]
        for child in children:
            child.receive()
        before = server.cpu_seconds()
        for child in children:
            child.send({"go": True})
        results = _gather(children, on_progress)
        after = server.cpu_seconds()
    crowd = crowd_of(results, tiers)
    return replace(crowd, server_cpu_us=cpu_us_per_write(before, after, crowd.writes))


def crowd_of(results: Sequence[dict[str, Any]], tiers: Sequence[str]) -> Crowd:
    """All processes' results as one."""
    outcomes = [outcome for result in results for outcome in result["clients"]]
    began = min(outcome["started"] for outcome in outcomes)
    total = sum(outcome["written"] for outcome in outcomes)
    first = tiers[0]
    return Crowd(
        clients=len(outcomes),
        processes=len(results),
        writes=total,
        tiers={tier: Tier(total, max(one["reached"][tier] for one in outcomes) - began) for tier in tiers},
        rates=tuple(one["written"] / (one["reached"][first] - one["started"]) for one in outcomes),
        client_cpu_us=sum(result["cpu_seconds"] for result in results) / total * 1e6,
    )


def _gather(children: Sequence[Child], on_progress: OnProgress) -> list[dict[str, Any]]:
    """What each process has to say; raises the first failure."""
    results: list[dict[str, Any]] = []
    failures: list[HeadraceError] = []
    progress = [0] * len(children)

    def follow(number: int, child: Child) -> None:
        def note(count: int) -> None:
            progress[number] = count
            on_progress(sum(progress))

        try:
            results.append(child.result(note))
        except HeadraceError as error:
            failures.append(error)

    threads = [Thread(target=follow, args=pair, daemon=True) for pair in enumerate(children)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results
