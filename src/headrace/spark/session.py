"""The Spark session that a pipeline runs in: made for this machine, or for the cluster that it is given."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Collection as Names
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from threading import Lock
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from headrace.spark.jars import JavaNotFound, find_java
from headrace.spark.lines import DEFAULT_LINE, Needs, SparkLine, installed_line, jars_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# All cores, and as many attempts at a task as on a cluster: a killed worker should not end the epoch.
_LOCAL = "local[*,4]"
_LOGGING = "quiet-log4j2.properties"
# Where what is given does not replace ours; with what stands between the two.
_JOINED = {
    "spark.driver.extraJavaOptions": " ",
    "spark.executor.extraJavaOptions": " ",
    "spark.driver.extraClassPath": os.pathsep,
    "spark.jars": ",",
}
# Java removes its temporary folder in this time.
_END_SECONDS = 30.0
_FILE_MANAGER = "FileSystemBasedCheckpointFileManager"
_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_settings: defaultdict[int, Lock] = defaultdict(Lock)  # by session


@dataclass(frozen=True)
class SparkSettings:
    master: str = ""
    """Of a cluster, or local[N]; empty for all cores of this machine. A cluster that spark-submit was told
    outranks it.
    """
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Outranks everything that is set here, and what spark-submit was told."""


def make_session(settings: SparkSettings, name: str, needs: Names[Needs] = ()) -> SparkSession:
    """Makes a session with the jars for these needs, or returns the one that is active already."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        for key, value in settings.conf.items():
            if active.conf.isModifiable(key):
                active.conf.set(key, value)
        return active
    find_java()
    # Without it workers are the first python3 on the PATH, which has none of our packages.
    os.environ.setdefault("PYSPARK_PYTHON", settings.conf.get("spark.pyspark.python", sys.executable))
    line = installed_line()
    jars = jars_for(line, needs)
    submitted = _submitted(jars)
    with _quiet_logging() as logging:
        builder = SparkSession.builder.appName(name)
        for key, value in session_conf(settings, submitted, jars, needs, logging, line).items():
            builder = builder.config(key, value)
        with _ended_if_interrupted(), _own_interrupt():
            return _started(builder)


@contextmanager
def setting(session: SparkSession, key: str, value: str) -> Iterator[None]:
    """A session has one value of it for all threads; one write at a time may have it as it wants.

    Each materialization of a file has a session to itself. But whoever calls `materialize` on several threads
    may do so with one session, and then a write must not be staged under the id of another.
    """
    java: Any = session._jsparkSession  # `session` itself is made anew by who asks a DataFrame for it
    with _settings[java.hashCode()]:
        before = session.conf.get(key, None)
        session.conf.set(key, value)
        try:
            yield
        finally:
            if before is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, before)


@contextmanager
def persisted(rows: DataFrame) -> Iterator[int]:
    """Asks for rows once, however often what follows does; gives how many there are."""
    rows.persist()
    try:
        yield rows.count()
    finally:
        rows.unpersist()


def _started(builder: SparkSession.Builder) -> SparkSession:
    from pyspark.errors import PySparkRuntimeError

    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if "JAVA_GATEWAY_EXITED" not in str(error):
            raise
        raise JavaNotFound(
            f"{find_java()} does not start Spark, and says why above: Spark needs Java 17 or later"
        ) from None


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Leaves SIGINT to whoever handles it: PySpark would take it to cancel all jobs, in the midst of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def _ended_if_interrupted() -> Iterator[None]:
    """Ends the JVM if its start is interrupted, as by Ctrl-C.

    PySpark would forget the process, and the JVM, which can no longer report its port, would run forever.
    """
    try:
        yield
    except BaseException as error:
        for frame, _ in walk_tb(error.__traceback__):
            process = frame.f_locals.get("proc")
            if frame.f_code.co_name == "launch_gateway" and isinstance(process, Popen):
                _end(process)
        raise


def _end(process: Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except TimeoutExpired:
        process.kill()
        process.wait()


def _submitted(jars: list[Path]) -> dict[str, str]:
    """Returns the configuration that spark-submit was given, if it started us.

    Then Java runs already, and what `spark.jars` says later is for executors only: the driver is given the
    jars here.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    java: Any = SparkContext._jvm
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    for jar in jars:
        loader.addURL(java.java.net.URL(jar.as_uri()))
    return dict(SparkConf().getAll())


def session_conf(
    settings: SparkSettings,
    submitted: Mapping[str, str],
    jars: list[Path],
    needs: Names[Needs],
    logging: str,
    line: SparkLine = DEFAULT_LINE,
) -> dict[str, str]:
    given = dict(settings.conf)
    master = _master(settings, submitted.get("spark.master", ""))
    conf = {
        "spark.ui.showConsoleProgress": "false",
        # So that a value means the same wherever a task runs.
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging} -Duser.timezone=UTC",
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        # Our checkpoint folders are on the driver's disk. The default starts a process of the system for each
        # file it writes there, which is most of what an empty epoch takes. Both rename, and neither syncs.
        "spark.sql.streaming.checkpointFileManagerClass": f"{line.checkpoint_package}.{_FILE_MANAGER}",
    }
    if Needs.ICEBERG in needs:
        conf["spark.sql.extensions"] = _EXTENSIONS
    if Needs.HUDI in needs:
        conf["spark.serializer"] = "org.apache.spark.serializer.KryoSerializer"
        conf["spark.kryo.registrator"] = "org.apache.spark.HoodieSparkKryoRegistrar"
    if master.startswith("local"):
        cores = str(os.cpu_count() or 2)
        conf |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": cores,
            "spark.python.daemon.module": "headrace.pipeline.worker_daemon",
            # On the class path: as `spark.jars` they would be copied for the executor that we are ourselves.
            "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        }
    elif jars:
        conf["spark.jars"] = ",".join(map(str, jars))
    for key, separator in _JOINED.items():
        value = given.pop(key, "") or submitted.get(key, "")
        if value:
            conf[key] = separator.join(filter(None, (conf.get(key), value)))
    ours = {key: value for key, value in conf.items() if key in _JOINED or key not in submitted}
    return {**ours, **given, "spark.master": master}


def _master(settings: SparkSettings, submitted: str) -> str:
    """Prefers a cluster that spark-submit was told: the file often names the machine where it was tried."""
    if submitted and not submitted.startswith("local"):
        return submitted
    given = settings.master or settings.conf.get("spark.master", "")
    return given or submitted or os.environ.get("MASTER", "") or _LOCAL


@contextmanager
def _quiet_logging() -> Iterator[str]:
    """Errors alone, on standard error; Spark reads the file when its process starts."""
    with as_file(files("headrace.spark") / _LOGGING) as path:
        yield path.as_uri()
