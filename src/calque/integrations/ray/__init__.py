"""`calque words`, `encode` and `anchors` on a cluster (extra `ray`).

The text is cut into shards. One Ray Data pipeline hands them to actors, each with an encoder or tables of word
translations. Ray places the actors, repeats the work of a node that dies, and uses nodes that join. calque itself keeps only
which shards are done: those whose result stands under its name.
"""

from calque.integrations.ray.cluster import Cluster

__all__ = ["Cluster"]
