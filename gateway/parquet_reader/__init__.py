"""A program that reads Parquet files of strangers, in a process of its own.

Damaged files make Arrow end the process that reads them. The program loads Arrow and nothing else of the
gateway; `gateway.datasets.formats` starts it.
"""
