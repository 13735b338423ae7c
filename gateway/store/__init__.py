"""The store: one SQLite file in WAL mode, one writer, acknowledgement after commit."""

from gateway.store._store import STORE_FILE, Session, Store

__all__ = ["STORE_FILE", "Session", "Store"]
