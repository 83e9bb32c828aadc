"""Merges objects: columns of JSON text are taken apart into those of their members, and put together again.

A column has a name; the members inside of it are in columns whose names go on from it (`Part.inside`). Where
an object has no such member its column is null, and where the member is null it is the text `null`: to the
reductions one is not the other. Members that the schema does not name are kept, in a list.

All of it is SQL. As one expression, in which each step is done once: Spark puts a column's expression in each
place where a filter above it names the column. And as text: to call Java for each function takes longer than
all the rest of planning.

Objects of one key become one by aggregates of what is inside of them. In an aggregate a part's column keeps
its name, and the text of an object is put together of them afterwards. A row that does not fit ends the job
where it is aggregated: a filter would be moved below what it looks at, and do it all once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.model.field_types import FieldType, Kind
from headrace.model.reduction_schema import Strategy
from headrace.pipeline.combine.aggregates import append_of, first_or_last, sum_of
from headrace.pipeline.combine.columns import decimal_text
from headrace.pipeline.combine.plan import Member
from headrace.spark.json_text import is_null, is_object, quoted, with_empty_strings
from headrace.spark.sql import escaped, value_of_text

_BY_VALUE = frozenset({Strategy.MINIMIZE, Strategy.MAXIMIZE, Strategy.SUM})
_NUMBER = r"^-?\\d+(\\.\\d+)?([eE][+-]?\\d+)?\\z"
_DIGITS = r"^-?\\d+\\z"
_EXACT_FLOAT = 2**53
_MAP = "map<string,string>"


@dataclass(frozen=True)
class Part:
    """A member, and the column of its JSON text."""

    member: Member
    column: str

    @property
    def inside(self) -> list[Part]:
        members = self.member.members if self.member.is_merged else ()
        return [Part(member, f"{self.column}_{index}") for index, member in enumerate(members)]

    @property
    def others(self) -> str:
        """The column of members that the schema does not name, each with `name` and its JSON as `text`."""
        return f"{self.column}_others"

    @property
    def value(self) -> str:
        """The column of the member's value in its own type; null where that is none."""
        return f"{self.column}_value"

    @property
    def needs_value(self) -> bool:
        return self.member.strategy in _BY_VALUE


def open_objects(rows: DataFrame, objects: Sequence[Part]) -> DataFrame:
    """The rows with the columns of all that is inside of these objects, however deep."""
    if not objects:
        return rows
    opened = rows.selectExpr("*", *(f"{_opened(part, part.column)} AS {_struct(part)}" for part in objects))
    columns = [path for part in objects for path in _paths(part, _struct(part))]
    return opened.selectExpr("*", *(f"{path}.{name} AS {name}" for path, name in columns))


def wrong_inside(part: Part, text: str) -> str:
    """An array of the pointers of what is not null and not of its type, and is reduced by its value.

    Null in it where nothing is wrong.
    """
    found = [_if_wrong(part, text, "")]
    for path, below in _checked(part, "opened"):
        found.append(_if_wrong(below, f"{path}.{below.column}", f"{path}.{below.value}"))
    return _let("opened", _opened(part, text), f"array({', '.join(found)})")


def _if_wrong(part: Part, text: str, value: str) -> str:
    fits = is_object(text) if part.member.is_merged else f"{value} is not null"
    is_wrong = f"{text} is not null and not {is_null(text)} and not {fits}"
    return f"if({is_wrong}, '{escaped(part.member.pointer)}', null)"


def _checked(part: Part, path: str) -> Iterator[tuple[str, Part]]:
    for below in part.inside:
        if below.needs_value or below.member.is_merged:
            yield path, below
        if below.member.is_merged:
            yield from _checked(below, f"{path}.{_struct(below)}")


def _struct(part: Part) -> str:
    """The struct of an object's parts."""
    return f"{part.column}_opened"


def _paths(part: Part, path: str) -> Iterator[tuple[str, str]]:
    """Where the columns of all that is inside are, each with its name."""
    yield path, part.others
    for below in part.inside:
        yield path, below.column
        if below.needs_value:
            yield path, below.value
        if below.member.is_merged:
            yield from _paths(below, f"{path}.{_struct(below)}")


def _let(name: str, value: str, result: str) -> str:
    """SQL has no other way to name a value and use it more than once."""
    return f"get(transform(array({value}), {name} -> {result}), 0)"


def _opened(part: Part, text: str) -> str:
    """The struct of what is inside of an object, given its text."""
    maps, lists, members = (f"{part.column}_{step}" for step in ("maps", "lists", "members"))
    results = [f"{members}.{part.others} AS {part.others}"]
    for below in part.inside:
        found = f"{members}.{below.column}"
        results.append(f"{found} AS {below.column}")
        if below.needs_value:
            value = _value(below.member.type, found, f"{members}.{below.value}")
            results.append(f"{value} AS {below.value}")
        if below.member.is_merged:
            results.append(f"{_opened(below, found)} AS {_struct(below)}")
    taken = _let(members, _members(part, lists), f"struct({', '.join(results)})")
    return _let(maps, _maps(text), _let(lists, _lists(maps), taken))


def _maps(text: str) -> str:
    known = f"if({is_object(text)}, {text}, null)"
    empty = with_empty_strings(known)
    return f"struct(from_json({known}, '{_MAP}') AS map, from_json({empty}, '{_MAP}') AS empty)"


def _lists(maps: str) -> str:
    """The names and values of members, from the last to the first: of two with one name the last counts."""
    values, empties = f"map_values({maps}.map)", f"map_values({maps}.empty)"
    text = f"case when value is null then 'null' when empty = '' then {quoted('value')} else value end"
    return (
        f"struct(reverse(map_keys({maps}.map)) AS names, reverse({values}) AS values,"
        f" reverse(zip_with({values}, {empties}, (value, empty) -> {text})) AS texts)"
    )


def _members(part: Part, lists: str) -> str:
    """The text of each member; where its value is needed too, what the quotes of a string are taken off."""
    columns = []
    for below in part.inside:
        place = f"int(array_position({lists}.names, '{escaped(below.member.name)}') - 1)"
        columns.append(f"get({lists}.texts, {place}) AS {below.column}")
        if below.needs_value:
            columns.append(f"get({lists}.values, {place}) AS {below.value}")
    pairs = f"zip_with({lists}.names, {lists}.texts, (name, text) -> struct(name, text))"
    is_other = f"array_position({lists}.names, pair.name) = index + 1"
    known = ", ".join(f"'{escaped(member.name)}'" for member in part.member.members)
    if known:
        is_other += f" and pair.name not in ({known})"
    others = f"filter({pairs}, (pair, index) -> {is_other})"
    return f"struct({', '.join([*columns, f'{others} AS {part.others}'])})"


def _value(field: FieldType, text: str, unquoted: str) -> str:
    """Reads JSON text in the member's own type; null where it is of another."""
    number = f"if({text} rlike '{_NUMBER}', try_cast({text} as double), null)"
    match field.kind:
        case Kind.BOOLEAN:
            return f"case {text} when 'true' then true when 'false' then false end"
        case Kind.INTEGER:
            spelled = f"if({text} rlike '{_DIGITS}', try_cast({text} as bigint), null)"
            # JSON has one type of number: 1.0 is an integer as well.
            is_whole = f"abs({number}) < {_EXACT_FLOAT} and {number} % 1 = 0"
            return f"coalesce({spelled}, if({is_whole}, cast({number} as bigint), null))"
        case Kind.NUMBER:
            return number
    return f"if(startswith({text}, '\"'), {value_of_text(field, unquoted)}, null)"


_IS_NULL, _IS_OBJECT = 1, 2
# Equal values of these may be spelled in several ways, and of equal ones the first is kept.
_SPELLED = (Kind.DATE_TIME, Kind.DECIMAL)


def reduced_parts(part: Part) -> list[Column]:
    """Aggregates of a part, under the names of their columns."""
    if not part.member.is_merged:
        return [_reduced(part).alias(part.column)]
    text = part.column
    kind = (
        f"max(case when {is_object(text)} then {_IS_OBJECT} when {is_null(text)} then {_IS_NULL}"
        f" when {text} is not null then {_refusal(part)} end)"
    )
    # Sorted by name and then by order of writing.
    entries = f"transform({part.others}, other -> struct(other.name, o, other.text))"
    others = f"array_sort(flatten(collect_list({entries}) FILTER (WHERE size({part.others}) > 0)))"
    inside = [column for below in part.inside for column in reduced_parts(below)]
    return [F.expr(kind).alias(part.column), F.expr(others).alias(part.others), *inside]


def merged_text(part: Part) -> str:
    """The JSON text of an object, of the aggregates of its parts; in SQL."""
    members = [
        f"concat('{escaped(orjson.dumps(below.member.name).decode())}:', {_text(below)})"
        for below in part.inside
    ]
    inside = ", ".join([*members, _others(part)])
    text = f"concat('{{', concat_ws(',', {inside}), '}}')"
    return f"case {part.column} when {_IS_OBJECT} then {text} when {_IS_NULL} then 'null' end"


def _text(part: Part) -> str:
    return merged_text(part) if part.member.is_merged else part.column


def _others(part: Part) -> str:
    """The members that the schema does not name: of each name the first, or the last."""
    step = "- 1" if part.member.others.strategy is Strategy.FIRST_WRITE_WINS else "+ 1"
    beside = f"get({part.others}, index {step}).name"
    chosen = f"filter({part.others}, (other, index) -> {beside} is null or {beside} <> other.name)"
    return f"transform({chosen}, other -> concat({quoted('other.name')}, ':', other.text))"


def _reduced(part: Part) -> Column:
    """JSON text. A null is a value to the first and the last write, to others only if there is no other."""
    member, name = part.member, part.column
    match member.strategy:
        case Strategy.FIRST_WRITE_WINS | Strategy.LAST_WRITE_WINS:
            return first_or_last(member.strategy, name)
        case Strategy.APPEND:
            return append_of(member, name)
        case Strategy.SUM:
            found = _sum(part)
        case _:
            found = _extreme(part)
    is_wrong = f"{name} is not null and {part.value} is null"
    null = f"max(case when {is_null(name)} then 'null' when {is_wrong} then {_refusal(part)} end)"
    return F.coalesce(found, F.expr(null))


def _extreme(part: Part) -> Column:
    least = part.member.strategy is Strategy.MINIMIZE
    name, value = part.column, part.value
    if part.member.type.kind not in _SPELLED:
        return F.expr(f"{'min_by' if least else 'max_by'}({name}, {value})")
    number = f"unix_micros({value})" if part.member.type.kind is Kind.DATE_TIME else value
    place = f"struct({number if least else f'-{number}'}, o)"
    return F.expr(f"min_by({name}, {place}) FILTER (WHERE {value} IS NOT NULL)")


def _sum(part: Part) -> Column:
    total = sum_of(part.member, F.col(part.value))
    if part.member.type.kind is not Kind.DECIMAL:
        return total.cast("string")
    alone = F.expr(f"max({part.column}) FILTER (WHERE {part.value} IS NOT NULL)")
    text = F.concat(F.lit('"'), decimal_text(part.member, total), F.lit('"'))
    # One alone keeps the digits that it came with.
    return F.when(F.count(part.value) == 1, alone).otherwise(text)


def _refusal(part: Part) -> str:
    wanted = "object" if part.member.is_merged else part.member.type
    sentence = f'at "{part.member.pointer}": `{part.member.strategy}` cannot take what is no {wanted}'
    return f"raise_error('{escaped(sentence)}')"
