"""How many generated kernels the library for products and convolutions keeps."""

import os

_VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


def keep_kernels(count: int) -> None:
    """Keeps so many kernels in the process, and as many prepared calls a thread; to be called before the first product.

    Every number of rows has kernels of its own, some hundred KiB a product, and oneDNN and PyTorch each keep 1,024 of
    them unless told otherwise: clips, hardly two of which are as long, would fill these with what never comes again
    (docs/benchmarks.md). What the environment says already stands.
    """
    for name in _VARIABLES:
        os.environ.setdefault(name, str(count))
