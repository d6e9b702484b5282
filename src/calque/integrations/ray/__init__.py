"""`calque words`, `encode` and `anchors` on a cluster (extra `ray`).

The text is cut into shards. One Ray Data pipeline hands them to actors that each hold an encoder, or tables of word
translations; Ray places the actors, begins their work again elsewhere when a node dies, and uses nodes that join. All that
is kept here is which shards are done: those whose result stands under its name.
"""

from calque.integrations.ray.cluster import Cluster

__all__ = ["Cluster"]
