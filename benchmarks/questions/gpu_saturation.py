"""Whether a GPU that is slower than the decoding sees nothing but full batches, one right after the other."""

from __future__ import annotations

from benchmarks.photo_rig import photo_rig
from benchmarks.photos import photo_mix
from benchmarks.results import Result, Series
from benchmarks.rig import scratch
from benchmarks.script import Scale, run_script
from benchmarks.simulated_gpu import MAX_BATCH, GpuTimes
from tidegate.local.options import StackOptions

SIZE = ((320, 240),)
#: 32 images take 165 ms, so 194 images a second: two cores decode so many pictures of that size with time to spare.
TIMES = GpuTimes(base_ms=5.0, per_image_ms=5.0)
PHOTOS = 2_500


def measure(scale: Scale) -> Result:
    """One worker with the number of children that ships, in front of a GPU that is the narrowest part."""
    children = StackOptions().concurrency
    with scratch() as folder, photo_rig(photo_mix(SIZE, of_each=5), TIMES, folder) as rig:
        pace = rig.classify(scale.count(PHOTOS, least=640), children)
    busy = TIMES.seconds(pace.gpu.batches, pace.gpu.images) / pace.seconds
    series = [
        Series("photos", "images/s", [pace.rate], pace.gpu.images, pace.wrong),
        Series("batches", "images of 32", [pace.gpu.fill * MAX_BATCH], pace.gpu.batches),
        Series("GPU", "busy share", [busy], pace.gpu.batches),
    ]
    conditions = {"children": children, "base_ms": TIMES.base_ms, "per_image_ms": TIMES.per_image_ms}
    return Result("gpu_saturation", series, {"batch_fill": pace.gpu.fill, "gpu_busy": busy}, conditions)


if __name__ == "__main__":
    run_script(measure)
