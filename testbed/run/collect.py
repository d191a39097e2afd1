"""Raw record files -> the Parquet tables of a results folder, after traffic has ended."""

from __future__ import annotations

import os
from collections.abc import Callable

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.tables import TABLES, TRACE, Table
from testbed.model.framing import charged_bytes
from testbed.model.scenario import Scenario
from testbed.model.topology import Topology
from testbed.run import tables
from testbed.run.results import ResultsFolder, refused
from testbed.run.trace import trace

MAKERS: dict[str, Callable[[tables.Source], pd.DataFrame]] = {
    "packets": tables.packets,
    "messages": tables.messages,
    "steps": tables.steps,
    "events": tables.events,
    "samples": tables.samples,
    "ports": tables.ports,
    "cpu": tables.cpu,
    "trace": trace,
}


def collect(folder: ResultsFolder, scenario: Scenario, topology: Topology, connections: list[tables.Connection]) -> None:
    """Write every table (the trace where the scenario asks for one), then drop the raw files.

    RunError when the disk is full; no half-written table is left then.
    """
    folder.free_room()
    source = tables.Source(folder.raw, topology, connections, _least_delay_ns(scenario), os.cpu_count() or 1)
    for table in TABLES:
        if table is TRACE and not scenario.measure.trace:
            continue
        _write(folder, table, MAKERS[table.name](source))
    folder.drop_raw()


def _least_delay_ns(scenario: Scenario) -> int:
    """No arrival is sooner after its `sent_ns`, which is when the sender's own clock has the frame leave its port: up to
    a frame time later than it really left, when the shaper let it go at once.
    """
    links = scenario.links
    frame_ns = charged_bytes(scenario.transport.payload, links.overhead_bytes) * 8 * 10**9 // links.rate_bps
    return max(0, min(links.delay_ns) - frame_ns)


def _write(folder: ResultsFolder, table: Table, frame: pd.DataFrame) -> None:
    """As documented in `analysis.tables`: every column is there, in that order, empty where the run had nothing to say."""
    frame = frame.reindex(columns=[column.name for column in table.columns])
    path = folder.path / table.file
    temporary = path.with_name(f".{table.file}.new")
    try:
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), temporary, compression="zstd")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise refused(path, error) from error
