"""What is right: whether documents that somebody reads are those of the first writes, each of them once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.certify.documents import BATCH, COLLECTION, SCHEMA, Document, key_of
from headrace.testing.runtime import combine

_MEMBERS = frozenset(SCHEMA["properties"])


@dataclass(frozen=True)
class Found:
    """What a look at a view has shown."""

    prefix: int
    """How many documents it is the view of: all of a write, or none."""
    lost: tuple[int, ...] = ()
    """Of those, which are not in it."""
    doubled: tuple[int, ...] = ()
    wrong: tuple[str, ...] = ()
    """What else cannot be."""

    def problem(self, *, excuse_doubled: bool = False) -> str:
        """In one sentence; empty if all is well."""
        problems = list(self.wrong)
        if self.lost:
            problems.insert(0, f"of {self.prefix} documents {_some(self.lost)} not there")
        if self.doubled and not excuse_doubled:
            problems.insert(0, f"{_some(self.doubled)} there more than once")
        return "; ".join(problems)


def look(rows: Sequence[Document], *, is_view: bool) -> Found:
    """`rows` are documents as the view has them, one for each key, or as each epoch has appended them."""
    wrong = [f"a row is no document of a certification: {row}" for row in rows if not _is_document(row)]
    rows = [row for row in rows if _is_document(row)]
    if is_view:
        times = Counter(row["key"] for row in rows)
        wrong += [f"{key!r} has {count} rows" for key, count in times.items() if count > 1]
    view = combine(COLLECTION, rows)
    numbers: Counter[int] = Counter()
    for row in view.values():
        seen = row["seen"]
        numbers.update(seen)
        wrong += _wrong_values(row, seen)
    prefix = -(-max(numbers, default=0) // BATCH) * BATCH
    lost = tuple(number for number in range(1, prefix + 1) if number not in numbers)
    doubled = tuple(sorted(number for number, count in numbers.items() if count > 1))
    return Found(prefix, lost, doubled, tuple(wrong))


def _is_document(row: Document) -> bool:
    seen = row.get("seen")
    return row.keys() >= _MEMBERS and isinstance(seen, list) and len(seen) > 0


def _wrong_values(row: Document, seen: list[int]) -> Iterable[str]:
    expected = {
        "count": len(seen),
        "total": sum(seen),
        "largest": max(seen),
        "last": seen[-1],
    }
    for name, value in expected.items():
        if row[name] != value:
            yield f"{name} of {row['key']!r} is {row[name]}, not {value}"
    first = list(dict.fromkeys(seen))
    if first != sorted(first):
        yield f"documents of {row['key']!r} are out of order"
    if any(key_of(number) != row["key"] for number in seen):
        yield f"{row['key']!r} has documents of another key"


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:3]))
    if len(numbers) > 3:
        shown += f" and {len(numbers) - 3} more"
    return f"{shown} {'is' if len(numbers) == 1 else 'are'}"
