"""The built-in systems: the registry entry of each. Stored tables are a sink of the
runtime (`runtime/wiring.py`).
"""

from __future__ import annotations

from millstream.connect import generator, log, memory, sinks
from millstream.connect.files import columns, source
from millstream.connect.registry import ConnectorEntry, add
from millstream.model import connector_declarations

for _entry in (
    ConnectorEntry(
        connector_declarations.FILES,
        source.open_files,
        sinks.open_files,
        follow=source.follow_files,
        offline=source.FilesOffline(),
        columns=columns.columns_of,
        generation=sinks.newest_generation,
    ),
    ConnectorEntry(
        connector_declarations.LOG,
        log.open_topic,
        sinks.open_topic,
        follow=log.follow_topic,
        offline=log.LogOffline(),
        columns=log.columns_of,
    ),
    ConnectorEntry(connector_declarations.SPARK, log.open_tapped, follow=log.follow_tapped, offline=log.LogOffline()),
    ConnectorEntry(connector_declarations.GENERATOR, generator.open_generator, follow=generator.open_generator),
    ConnectorEntry(connector_declarations.MEMORY, memory.open_memory, offline=memory.MemoryOffline()),
    ConnectorEntry(connector_declarations.CONSOLE, sink=sinks.open_console),
):
    add(_entry)
