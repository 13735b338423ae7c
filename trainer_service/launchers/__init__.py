"""How the process of a run is started."""
