"""How the C library keeps memory that is freed."""

import ctypes

# Parameters of glibc's mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_KEPT_BYTES = 256 << 20
_LARGEST_BYTES = 1 << 30


def keep_freed_memory() -> bool:
    """Keeps up to 256 MiB of freed memory in the process, for all threads; False where the C library cannot.

    A step's matrices are as large as those of the step before. By default each one above 32 MiB, and on a thread of its
    own above 64 MiB, is mapped and cleared by the kernel anew, which costs more than many a matrix product.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_M_MMAP_THRESHOLD, _LARGEST_BYTES), (_M_TRIM_THRESHOLD, _KEPT_BYTES), (_M_ARENA_MAX, 1))
    return sum(mallopt(ctypes.c_int(name), ctypes.c_int(value)) for name, value in settings) == len(settings)
