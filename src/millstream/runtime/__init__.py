"""Flows alive: the loop of epochs, epoch records, watermarks, recovery. Never imports pyspark; the engine comes as a
port.
"""
