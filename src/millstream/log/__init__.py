"""The durable log: topic, partition, segment, offset. `Log` is the entry point."""

from millstream.log.append_ack import Ack
from millstream.log.log import Log
from millstream.log.reader import Part
from millstream.log.retention import TrimReport
from millstream.log.topic import PartitionStats, Topic

__all__ = ["Ack", "Log", "Part", "PartitionStats", "Topic", "TrimReport"]
