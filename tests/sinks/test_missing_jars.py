"""A Spark that was started without the jars that a format needs."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.errors import ConfigError
from headrace.sinks.hudi_tables import HudiTable


def test_it_is_said_which_jar_is_missing(spark: SparkSession) -> None:
    session: Any = spark
    apache = SimpleNamespace(hudi=session._jvm.org.apache.no_such_thing)
    without: Any = SimpleNamespace(
        version="3.5.7", _jsc=None, _jvm=SimpleNamespace(org=SimpleNamespace(apache=apache))
    )
    with pytest.raises(ConfigError, match=r"Hudi is not among the jars of this Spark 3\.5\.7: start it with"):
        HudiTable(without, "file:///nowhere", ("id",), (), {})


@pytest.mark.processes
def test_who_only_reads_needs_no_spark() -> None:
    code = "import sys, headrace.sinks.hudi; print({'py4j', 'pyspark'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
