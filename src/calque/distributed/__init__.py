"""Several processes as one: the only package that knows ranks. accelerate or torchrun starts them."""

from calque.distributed.processes import Processes, is_first, lost_peer, meet, own_device, world_size

__all__ = ["Processes", "is_first", "lost_peer", "meet", "own_device", "world_size"]
