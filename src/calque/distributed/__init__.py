"""Training with several processes, started by accelerate or torchrun."""

from calque.distributed.processes import (
    Processes,
    is_first,
    lost_peer,
    meet,
    own_device,
    world_size,
)

__all__ = ["Processes", "is_first", "lost_peer", "meet", "own_device", "world_size"]
