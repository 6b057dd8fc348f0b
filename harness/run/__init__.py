"""Running cells: the pytest plugin, the processes, and what is made of their ends."""

DEFAULT_TIMEOUT = 120.0  # seconds a cell may take; a cold inductor cell took 23 s on two cores
