"""What is wrong with a rule is said before anything starts, in one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.config import load_config
from headrace.errors import ConfigError
from headrace.model.collections import Collection
from headrace.pipeline.quality.apply import check_rules
from headrace.pipeline.settings import Action, Rule
from tests.pipeline.quality.test_apply import ODD, binding_of

TIMES = "a replayed epoch has to judge the same"


def refusal(spark: SparkSession, *rules: Rule) -> str:
    with pytest.raises(ConfigError) as caught:
        check_rules(spark, binding_of(*rules))
    message = caught.value.message
    assert "\n" not in message
    assert message.startswith(("rule 'r' of collection 'orders' ", "rule 'r' of collection 'orders': "))
    return message


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Rule("r"), "a rule has exactly one of not_null, range, regex, in_set, unique, expression"),
        (Rule("r", field="id", minimum=1, regex="x"), "exactly one of .*; this one has range and regex"),
        (Rule("r", not_null=("id", "nosuch")), "not_null.1: the schema has no field 'nosuch'; it has id"),
        (Rule("r", unique=("nosuch",)), "unique.0: the schema has no field 'nosuch'"),
        (Rule("r", minimum=1), "range.field: the schema has no field ''"),
        (Rule("r", field="amount", regex="x"), "regex.field: the field 'amount' is number, which this check"),
        (Rule("r", field=ODD, regex="a["), "regex.pattern: this is no regular expression: unterminated"),
        (Rule("r", field=ODD, regex="a{2,1}"), "has a regex that is none: Illegal repetition range near"),
        (Rule("r", field="is_paid", minimum=True), "range.field: the field 'is_paid' is boolean, which this"),
        (Rule("r", field="tags", in_set=("[]",)), "in_set.field: the field 'tags' is json, which this check"),
        (Rule("r", field="id", minimum=True), "range.minimum: the field 'id' is integer: write a number"),
        (Rule("r", field="id", in_set=(1, 1.5)), "in_set.values.1: .* and 1.5 has more than 0 fraction"),
        (Rule("r", field="id", maximum=2**63), "is beyond what it can hold, -9223372036854775808 to"),
        (Rule("r", field="amount", maximum=float("inf")), "the field 'amount' is number: write a number"),
        (Rule("r", field="price", in_set=("0.001",)), "and '0.001' has more than 2 fraction digits"),
        (Rule("r", field="price", minimum="1e9"), "range.minimum: the field 'price' is .*: write a number"),
        (Rule("r", field="price", minimum=10**8), "is beyond what it can hold, -99999999.99 to 99999999.99"),
        (Rule("r", field="day", minimum="01.02.2024"), "the field 'day' is date: write a date, such as"),
        (Rule("r", field="at", minimum="2024-01-01"), "the field 'at' is date-time: write a time, such as"),
        (Rule("r", field=ODD, in_set=(1,)), "is string: write text, in quotes"),
        (Rule("r", field="amount", minimum=2, maximum=1), "nothing lies between it and maximum, 1"),
        (Rule("r", field="id", minimum=1.1, maximum=1.9), "nothing lies between it and maximum, 1.9"),
        (
            Rule("r", expression="amount >"),
            "has an expression that Spark refuses: Syntax error at or near end of input",
        ),
        (Rule("r", expression="nosuch > 1"), "with name `nosuch` cannot be resolved"),
        (Rule("r", expression="_raw = ''"), "with name `_raw` cannot be resolved"),
        (Rule("r", expression="amount + 1"), "is double: write one that is true or false"),
        (Rule("r", expression="*"), "has an expression with a star"),
        (Rule("r", expression="rand() > 0.5"), TIMES),
        (Rule("r", expression="uuid() = 'x'"), TIMES),
        (Rule("r", expression="current_timestamp() > at"), TIMES),
        (Rule("r", expression="now() > at"), TIMES),
        (Rule("r", expression="current_date() > day"), TIMES),
        (Rule("r", expression="unix_timestamp() > id"), TIMES),
        (Rule("r", expression="at < timestamp'now'"), TIMES),
        (Rule("r", expression="day < 'today'"), TIMES),
        (Rule("r", expression="sum(amount) > 0"), "with an aggregate, a window or a generator"),
        (
            Rule("r", expression="row_number() over (order by id) = 1"),
            "with an aggregate, a window or a generator",
        ),
        (Rule("r", expression="explode(array(true))"), "with an aggregate, a window or a generator"),
        (Rule("r", expression="id in (select 1)"), "with a subquery"),
        (Rule("r", expression="exists(select 1)"), "with a subquery"),
        (Rule("r", expression="trim(tags) rlike 'a['"), "has a regex that is none: Unclosed character class"),
    ],
)
def test_a_rule_that_cannot_be(spark: SparkSession, rule: Rule, said: str) -> None:
    found = refusal(spark, rule)
    assert said in found or re.search(said, found), found


def test_names_are_there_once_and_are_not_those_of_the_schema(spark: SparkSession) -> None:
    assert "name: another rule has the name 'r' too: rename one" in refusal(
        spark, Rule("r", not_null=("id",)), Rule("r", not_null=("id",))
    )
    for name, said in (("", "give it a name"), ("schema:/id", "wrong by the schema"), ("json", "wrong by")):
        with pytest.raises(ConfigError, match=said):
            check_rules(spark, binding_of(Rule(name, not_null=("id",))))


def test_a_binding_cannot_only_warn_of_its_schema_or_use_our_names(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"collection 'orders': .* set invalid to drop or fail"):
        check_rules(spark, binding_of(invalid=Action.WARN))
    properties = {"id": {"type": "integer"}, "_raw": {"type": "string"}}
    taken = Collection("c", ("/id",), {"type": "object", "properties": properties, "required": ["id"]})
    with pytest.raises(ConfigError, match=re.escape("collection 'c' has a property '_raw'")):
        check_rules(spark, binding_of(collection=taken))


def test_good_rules_pass(spark: SparkSession) -> None:
    rules = [
        Rule("1", field="price", minimum="0.105", maximum=19.99),
        Rule("2", field="day", minimum="2024-01-01"),
        Rule("3", field="at", in_set=("2024-01-01T00:00:00Z",)),
        Rule("4", expression="`odd ``name``. x` = 'now' or tags rlike '^.[a-z]' or amount between 0 and 5"),
        Rule("5", unique=("id", ODD)),
        Rule("6", field="id", minimum=0.5, maximum=1.5),
    ]
    check_rules(spark, binding_of(*rules))


def test_the_rules_of_the_documentation(spark: SparkSession, tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs/quality.md"
    found = re.search(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    assert found is not None
    file = tmp_path / "headrace.yaml"
    file.write_text(found[1])
    (sales,) = load_config(file).pipeline_settings().materializations
    check_rules(spark, sales.bindings[0])
    assert len(sales.bindings[0].rules) == 7
    assert (sales.bindings[0].invalid, sales.dead_letters and sales.dead_letters.format) == (
        "drop",
        "parquet",
    )
