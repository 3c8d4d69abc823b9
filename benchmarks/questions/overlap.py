"""How many children a worker needs so that one batch is decoded while Triton works on another.

The GPU takes about as long for a photo as one core does, so that neither alone is the narrowest part.
"""

from __future__ import annotations

from benchmarks.photo_rig import PhotoPace, photo_rig
from benchmarks.photos import SIZES, photo_mix
from benchmarks.results import Result, Series
from benchmarks.rig import scratch
from benchmarks.script import Scale, run_script
from benchmarks.simulated_gpu import GpuTimes

TIMES = GpuTimes(base_ms=5.0, per_image_ms=5.0)
CHILDREN = (1, 2, 3)
PHOTOS = 400
#: Up to 1.9 megapixels: four cores' worth of a GPU would hide behind larger ones.
MEDIUM_SIZES = SIZES[:4]


def measure(scale: Scale) -> Result:
    """One worker with one, two and three children, in turns."""
    rounds = max(1, scale.rounds - 2)
    paces: dict[int, list[PhotoPace]] = {children: [] for children in CHILDREN}
    with scratch() as folder, photo_rig(photo_mix(MEDIUM_SIZES, of_each=4), TIMES, folder) as rig:
        for _ in range(rounds):
            for children in CHILDREN:
                paces[children].append(rig.classify(scale.count(PHOTOS, least=200), children))
    series = [
        Series(
            f"{children} children",
            "photos/s",
            [pace.rate for pace in seen],
            sum(pace.gpu.images for pace in seen),
            sum(pace.wrong for pace in seen),
        )
        for children, seen in paces.items()
    ]
    one, two, three = (one.median for one in series)
    return Result(
        "overlap",
        series,
        {"two_children_vs_one": two / one, "three_children_vs_two": three / two},
        {"base_ms": TIMES.base_ms, "per_image_ms": TIMES.per_image_ms},
    )


if __name__ == "__main__":
    run_script(measure)
