"""What is wrong with a rule is said before anything starts, in one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.config import load_config
from headrace.errors import ConfigError
from headrace.model.collections import Collection
from headrace.pipeline.quality import check_rules
from headrace.pipeline.settings import Action, Rule
from tests.pipeline.test_quality import ODD, binding_of

TIMES = "a replayed epoch has to judge the same"


def refusal(spark: SparkSession, *rules: Rule) -> str:
    with pytest.raises(ConfigError) as caught:
        check_rules(spark, binding_of(*rules))
    message = caught.value.message
    assert "\n" not in message
    assert message.startswith("rule 'r' of collection 'orders' ")
    return message


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Rule("r"), "has no check: give it exactly one of not_null, minimum or maximum, regex"),
        (
            Rule("r", field="id", minimum=1, regex="x"),
            "has minimum or maximum and regex: give it exactly one",
        ),
        (
            Rule("r", not_null=("id", "nosuch")),
            "is about the field 'nosuch', which the schema does not have; it has id",
        ),
        (Rule("r", unique=("nosuch",)), "is about the field 'nosuch'"),
        (Rule("r", minimum=1), "is about the field ''"),
        (
            Rule("r", field="amount", regex="x"),
            "has a regex for the field 'amount', which is number: it needs text",
        ),
        (
            Rule("r", field=ODD, regex="a["),
            "has a regex that is none: Unclosed character class near index 1 in 'a['",
        ),
        (
            Rule("r", field="is_paid", minimum=True),
            "has a range for the field 'is_paid', which is boolean and has none",
        ),
        (
            Rule("r", field="tags", in_set=("[]",)),
            "has a set for the field 'tags', which is json and has none",
        ),
        (Rule("r", field="id", minimum=True), "with True, which is not a number"),
        (Rule("r", field="id", in_set=(1, 1.5)), "with 1.5, which has more than 0 fraction digits"),
        (Rule("r", field="id", maximum=2**63), "is beyond what the field can hold, -9223372036854775808 to"),
        (Rule("r", field="amount", maximum=float("inf")), "which is not a number that can be compared with"),
        (Rule("r", field="price", in_set=("0.001",)), "with '0.001', which has more than 2 fraction digits"),
        (Rule("r", field="price", minimum="1e9"), "which is not a number in plain notation"),
        (
            Rule("r", field="price", minimum=10**8),
            "is beyond what the field can hold, -99999999.99 to 99999999.99",
        ),
        (Rule("r", field="day", minimum="01.02.2024"), "is no date: '01.02.2024' is not a date (YYYY-MM-DD)"),
        (
            Rule("r", field="at", minimum="2024-01-01"),
            "is no date-time: '2024-01-01' is not a date-time with an offset",
        ),
        (Rule("r", field=ODD, in_set=(1,)), "with 1, which is not a string"),
        (Rule("r", field="amount", minimum=2, maximum=1), "from 2 to 1, and nothing is between them"),
        (Rule("r", field="id", minimum=1.1, maximum=1.9), "from 1.1 to 1.9, and nothing is between them"),
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
    assert said in refusal(spark, rule)


def test_names_are_there_once_and_are_not_those_of_the_schema(spark: SparkSession) -> None:
    assert "is there twice: rename one" in refusal(
        spark, Rule("r", not_null=("id",)), Rule("r", not_null=("id",))
    )
    for name, said in (("", "has no name"), ("schema:/id", "wrong by the schema"), ("json", "wrong by")):
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
    page = Path(__file__).parents[2] / "docs/quality.md"
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
