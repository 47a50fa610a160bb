"""Lends jax's interpreter of TPU kernels what ragged paged attention needs of it and it lacks up to jax 0.12.

It can neither read a reshaped buffer nor write a part of a buffer under a mask. The kernel waits for pages in one place
and writes in one way, so two stand-ins do: the pages as an array, and a write of old and new values chosen by the mask.
"""

import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.ragged_paged_attention import kernel


def lend(monkeypatch):
    arrived = kernel.MultiPageAsyncCopyDescriptor.wait

    def store(buffer, new, *, mask):
        buffer[...] = jnp.where(mask, new, buffer[...])

    monkeypatch.setattr(kernel.MultiPageAsyncCopyDescriptor, "wait", lambda copies: arrived(copies)[...])
    monkeypatch.setattr(pltpu, "store", store)
