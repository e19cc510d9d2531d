"""Frame arithmetic of the convolutional front ends: the only place that computes windows and strides."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FrontEndGeometry:
    """A stack of (kernel, stride) convolutions along time."""

    convolutions: tuple[tuple[int, int], ...]

    @property
    def rate(self) -> int:
        """Feature frames per encoder frame."""
        rate = 1
        for _, stride in self.convolutions:
            rate *= stride
        return rate

    @property
    def right_context(self) -> int:
        """Feature frames an encoder frame sees beyond its first."""
        context, rate = 0, 1
        for kernel, stride in self.convolutions:
            context += (kernel - 1) * rate
            rate *= stride
        return context

    @property
    def min_frames(self) -> int:
        """Fewest feature frames that yield an encoder frame."""
        return self.right_context + 1

    def window(self, chunk: int) -> int:
        """Feature frames that a chunk of `chunk` encoder frames needs."""
        return (chunk - 1) * self.rate + self.right_context + 1

    def stride(self, chunk: int) -> int:
        """Feature frames from one chunk to the next."""
        return chunk * self.rate

    def frames_out(self, frames: int) -> int:
        """Encoder frames of `frames` feature frames."""
        for kernel, stride in self.convolutions:
            if frames < kernel:
                return 0
            frames = (frames - kernel) // stride + 1
        return frames


FRONT_ENDS = {
    "conv2d": FrontEndGeometry(((3, 2), (3, 2))),
    "conv2d6": FrontEndGeometry(((3, 2), (5, 3))),
    "conv2d8": FrontEndGeometry(((3, 2), (3, 2), (3, 2))),
}
