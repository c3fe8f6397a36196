"""One small call, and the status with which a call fails."""

from ctypes import byref

import numpy

from cases import Finisher, table_of
from plugin import PluginError, Rotate, whole


def refusal(plugin, name, *arguments, device=0):
    """The status with which a call fails; None if it does not."""
    try:
        plugin.call(name, *arguments, device=device)
    except PluginError as error:
        return error.status
    return None


class Rotation:
    """A small one, of 8 tokens; in `memory` if that is given."""

    def __init__(self, tensor=None, head_dim=16, heads=2):
        self.x = numpy.arange(8 * heads * head_dim, dtype="<f4")
        self.y = numpy.full_like(self.x, 7)
        self.positions, self.inv_freq = numpy.arange(8.0), 0.5 ** numpy.arange(8.0)
        self.finisher = Finisher("exact", "FP32", 1.0, 0)
        self.work = Rotate(head_dim=head_dim, half_split_parts=1, tokens=8, heads=heads,
                           table=table_of(self.positions, self.inv_freq, "exact", "FP32", finisher=self.finisher),
                           x=tensor or whole(self.x), y=tensor or whole(self.y), token_stride=4 * heads * head_dim,
                           head_stride=4 * head_dim)

    def run(self, plugin):
        plugin.call("rotate", byref(self.work))
        return self.y

    def untouched(self):
        return (self.y == 7).all()
