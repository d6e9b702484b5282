"""Several processes as one: the only package that knows ranks. accelerate or torchrun starts them."""

from calque.distributed.group import is_first, lost_peer, meet, own_device, same_device, world_size
from calque.distributed.processes import Processes

__all__ = ["Processes", "is_first", "lost_peer", "meet", "own_device", "same_device", "world_size"]
