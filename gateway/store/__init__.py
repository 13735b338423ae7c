"""The store: one SQLite file in WAL mode, one writer, acknowledgement after commit."""

from gateway.store._store import Session, Store

__all__ = ["Session", "Store"]
